/* SPDX-License-Identifier: MIT */
// Tables of weights and states whose homes are in host memory or on a disk, and when they are on the device.

const PLACES = {
    pinned: 'host memory',
    disk: 'disk'
};

// From which step to which each copy is on the device.
function visitsTitle(picture, home) {
    const name = (node) => textOf(picture.names[node]);
    return home.visits.map(([first, last]) => `${name(first)} to ${name(last)}`).join('\n') || 'stays there';
}

function homeCell(picture, home) {
    if (!home) return 'device';
    return element(
        'span', {class: 'decision', title: visitsTitle(picture, home)}, chip(PLACES[home.place] || home.place),
        element('small', null, home.visits.length === 1 ? '1 visit' : `${home.visits.length} visits`));
}

// Adds a table for each network and batch, with a column for each plan that has some.
function addHomes(all) {
    const planned = [
        ...all.plans.filter((plan) => plan.picture)
            .map(
                ({raw, picture}) =>
                    ({group: `${textOf(raw.net)}, batch ${textOf(raw.batch)}`, policy: textOf(raw.policy), picture})),
        ...all.runs.filter((run) => run.picture),
    ].filter((one) => one.picture.homes.length > 0);
    if (planned.length === 0) return;
    const made = section(
        'homes', 'Homes of weights and states',
        'Where weights, gradients and optimizer states lie while no step uses them, and how often copies of them are ' +
            'on the device.',
        'Homes');
    for (const [group, plans] of groupBy(planned, (one) => one.group)) {
        const of = (plan, name) => plan.picture.homes.find((home) => home.name === name);
        const rows =
                  [...new Map(plans.flatMap((plan) => plan.picture.homes.map((home) => [home.name, home]))).values()],
              largest = most(rows.map((home) => home.bytes));
        const size = {
            name: 'size',
            title: 'bytes of the tensor',
            number: true,
            of: (home) => home.bytes,
            cell: (home) => barCell(home.bytes, largest, sizeText(home.bytes))
        };
        const columns = [
            Object.assign(
                textColumn('tensor', 'its name', (home) => home.name),
                {cell: (home) => element('span', null, breakable(home.name))}),
            textColumn('kind', 'what it is', (home) => home.kind),
            size,
            ...plans.map((plan) => ({
                             name: plan.policy,
                             title: 'its home under this plan',
                             of: (home) => (of(plan, home.name) ? of(plan, home.name).place : 'device'),
                             cell: (home) => homeCell(plan.picture, of(plan, home.name))
                         })),
        ];
        made.append(
            element('h3', null, `${group}: ${rows.length.toLocaleString('en')} tensors`),
            ...sortedTable('homes of ' + group, columns, rows, {sortColumn: size}));
    }
}
