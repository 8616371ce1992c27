/* SPDX-License-Identifier: MIT */
// Sets the theme, and adds the sections in their order.

const themes = {
    system: matchMedia('(prefers-color-scheme: dark)'),
    value: 'auto',

    apply() {
        const dark = this.value === 'dark' || (this.value === 'auto' && this.system.matches);
        document.documentElement.dataset.theme = dark ? 'dark' : 'light';
        redrawAll();
    },

    // A browser may refuse localStorage to a page from a file; then the choice is not stored.
    set(value, keep) {
        this.value = value;
        try {
            if (keep) localStorage.setItem('mm-report-theme', value);
        } catch (refused) { /* the next visit follows the system */
        }
        this.apply();
    },

    start() {
        let stored = null;
        try {
            stored = localStorage.getItem('mm-report-theme');
        } catch (refused) { /* the theme follows the system */
        }
        const value = ['light', 'dark'].includes(stored) ? stored : 'auto';
        this.system.addEventListener('change', () => this.apply());
        document.getElementById('theme').replaceWith(choice(
            'Colours', [['auto', 'auto'], ['light', 'light'], ['dark', 'dark']], value,
            (chosen) => this.set(chosen, true)));
        this.set(value, false);
    },
};

function addSources(all) {
    const nets = [
        ...new Set([...all.rows, ...all.plans.map((plan) => plan.raw)]
                       .map((row) => textOf(row.net))
                       .concat(all.runs.map((run) => run.group)))
    ].filter(Boolean);
    document.title = 'mm report' + (nets.length > 0 ? ': ' + nets.slice(0, 3).join('; ') : '');
    document.getElementById('sources').append(
        `mm ${all.version}, from `,
        ...all.files.flatMap(
            (file, i) => [i > 0 ? ', ' : '', element('b', null, textOf(file.name)), ` (${textOf(file.kind)})`]));
}

themes.start();
const all = readData();
addSources(all);
addCurves(all.rows);
addTraining(all.logs, all.rows);
addRuns(all.rows);
addPlans(all.plans);
addMemory(all);
addTimelines(all);
addMaps(all);
addHomes(all);
if (document.querySelectorAll('main section').length === 0)
    document.getElementById('main').append(
        element('p', {class: 'note'}, 'There is nothing to show in these files: no row, no plan and no event.'));
document.documentElement.dataset.ready = 'yes';
