/* SPDX-License-Identifier: MIT */
// Tables of runs and of plans. A click on a column sorts them.

const FIRST_ROWS = 40;   // shown before "show all"
const FOLD_BEYOND = 16;  // rows; of more, each group shows some, and folds the others

// The classes of a cell; row null: of the column's head.
function classesOf(column, row) {
    const predicted = row && column.predicted && column.predicted(row);
    return [column.number && 'number', column.below && 'below', predicted && 'predicted'].filter(Boolean).join(' ') ||
        null;
}

// columns: {name, title, of(row): value to sort by, cell(row): a node or a text, number: whether values are numbers,
// predicted(row): whether its value is, below: a narrow window does not show it}. sortColumn null: at first the rows
// stay in their order, with a line where groupOf(row) changes. folded(row): whether a row is shown only on demand.
// foldedText(rows, shown): tells rows of a group that are folded, and those of it that are shown. Without it none are.
function sortedTable(
    label, columns, rows, {sortColumn = null, descending = true, groupOf = null, folded = null, foldedText = null}) {
    const state = {column: sortColumn, descending, all: false, filter: '', open: new Set()};
    const body = element('tbody'), more = element('button', {
                                       type: 'button',
                                       class: 'more',
                                       onclick: () => {
                                           state.all = true;
                                           fill();
                                       }
                                   });
    const heads = columns.map((column) => {
        const button = element(
            'button', {
                type: 'button',
                title: column.title,
                onclick: () => {
                    state.descending = state.column === column ? !state.descending : Boolean(column.number);
                    state.column = column;
                    fill();
                }
            },
            column.name);
        return element('th', {scope: 'col', class: classesOf(column, null)}, button);
    });
    const compare = (a, b) => {
        const x = state.column.of(a), y = state.column.of(b),
              missing = (v) => v === null || v === undefined || v === '';
        if (missing(x) || missing(y)) return missing(x) - missing(y);  // missing values come last in both directions
        const order = isNumber(x) && isNumber(y) ? x - y : String(x).localeCompare(String(y), 'en', {numeric: true});
        return state.descending ? -order : order;
    };
    const rowOf = (row, first) => element('tr', {class: first ? 'first' : null}, columns.map((column, i) => {
        const name = i === 0 ? 'th' : 'td', scope = i === 0 ? 'row' : null;
        return element(name, {class: classesOf(column, row), scope}, column.cell(row));
    }));
    // A button in a row of its own, which unfolds the rows of a group.
    const unfoldRow = (key, rest, shown) => {
        const isOpen = state.open.has(key);
        return element(
            'tr', {class: 'fold' + (shown.length === 0 ? ' first' : '')},
            element(
                'td', {colspan: columns.length},
                element(
                    'button', {
                        type: 'button',
                        'aria-expanded': String(isOpen),
                        onclick: () => {
                            if (!state.open.delete(key)) state.open.add(key);
                            fill();
                            [...body.querySelectorAll('.fold button')].find((one) => one.value === key).focus();
                        },
                        value: key
                    },
                    foldedText(rest, shown))));
    };
    function groupRows(found) {
        const groups = groupBy(found, groupOf), each = Math.max(1, Math.floor(FOLD_BEYOND / groups.size));
        return [...groups].flatMap(([key, own]) => {
            const shown = own.filter((row) => !folded(row)).slice(0, each);
            const rest = own.filter((row) => !shown.includes(row));
            return [
                ...shown.map((row, i) => rowOf(row, i === 0)), rest.length > 0 && unfoldRow(key, rest, shown),
                ...(state.open.has(key) ? rest.map((row) => rowOf(row, false)) : [])
            ].filter(Boolean);
        });
    }
    function fill() {
        const words = state.filter.toLowerCase().split(/\s+/).filter(Boolean);
        const found = rows.filter(
            (row) => words.every((word) => columns.some((c) => String(c.of(row)).toLowerCase().includes(word))));
        if (state.column) found.sort(compare);
        heads.forEach(
            (head, i) => head.setAttribute(
                'aria-sort',
                columns[i] !== state.column ? 'none' :
                    state.descending        ? 'descending' :
                                              'ascending'));
        const open = folded && words.length === 0 ? found.filter((row) => !folded(row)) : found;
        const idle = found.length - open.length;
        if (foldedText && !state.all && !state.column && words.length === 0 && open.length > FOLD_BEYOND) {
            body.replaceChildren(...groupRows(found));
            more.hidden = false;
        } else {
            const shown = state.all ? found : (open.length > 0 ? open : found).slice(0, FIRST_ROWS);
            const first = (i) => groupOf && !state.column && i > 0 && groupOf(shown[i]) !== groupOf(shown[i - 1]);
            body.replaceChildren(...shown.map((row, i) => rowOf(row, first(i))));
            more.hidden = shown.length === found.length;
        }
        more.textContent = `show all ${found.length.toLocaleString('en')} rows` +
            (idle > 0 ? `, ${idle.toLocaleString('en')} of which did not run` : '');
    }
    fill();
    const box = element(
        'div', {class: 'table', tabindex: 0, role: 'region', 'aria-label': label},
        element('table', null, element('thead', null, element('tr', null, heads)), body));
    // A box that shows a part of its table fades towards the columns that can be scrolled to.
    const fade = () => box.classList.toggle('cut', box.scrollLeft + box.clientWidth < box.scrollWidth - 1);
    box.addEventListener('scroll', fade, {passive: true});
    new ResizeObserver(fade).observe(box);
    new ResizeObserver(fade).observe(box.firstChild);
    const filter = rows.length > 12 && element('input', {
                       type: 'search',
                       placeholder: 'filter: words of a row',
                       'aria-label': 'Filter ' + label,
                       oninput: (event) => {
                           state.filter = event.target.value;
                           fill();
                       }
                   });
    return [filter && element('div', {class: 'sectionbar'}, filter), box, more].filter(Boolean);
}

const textColumn = (name, title, of) => ({name, title, of, cell: (row) => String(of(row) === null ? '' : of(row))});
const sizeColumn = (name, title, key) => ({
    name,
    title,
    number: true,
    of: (row) => numberOf(row[key]) || null,
    cell: (row) => sizeText(numberOf(row[key]) || null)
});

// A figure over a bar of its share; the bar of a predicted one is hatched.
function barCell(value, whole, text) {
    return element(
        'span', {class: 'share', style: `--share: ${clamp(whole > 0 ? value / whole : 0, 0, 1).toFixed(3)}`}, text);
}

function idleChip(why) {
    const made = chip('acts on nothing', 'bad');
    made.title = why;
    return made;
}

// The policy as asked for; after an arrow the one at the end, if it was switched or replaced.
function policyText(row) {
    const asked = textOf(row.policy), now = textOf(row.policy_effective);
    return asked + (now && now !== asked ? ' → ' + now : '');
}

// predicted(row): whether all of the row is. where: columns whose values stand below the policy in a narrow window.
// chips(row): more of them.
const policyColumn = (predicted, where, chips = () => null) => ({
    name: 'policy',
    title: 'the policy as it was asked for; after an arrow, the one at the end',
    of: (row) => policyText(row) + (row.lossy === true ? ' lossy' : '') + (row.simulated === true ? ' simulated' : ''),
    cell: (row) => element(
        'span', {class: 'policy'},
        markIcon(seriesOf(textOf(row.policy)), {predicted: predicted(row), lossy: row.lossy === true}),
        element(
            'span', null, breakable(policyText(row)), ' ', row.lossy === true ? chip('lossy') : null, ' ', chips(row),
            ' ', row.idle ? idleChip(textOf(row.idle)) : null,
            where.length > 0 &&
                element(
                    'small', {class: 'where'},
                    where.map((column, i) => [i > 0 ? ', ' : '', element('span', null, column.text(row))]))))
});

const isSimulated = (row) => row.simulated === true;
const doesNotFit = (row) => textOf(row.status).startsWith('infeasible');

// Rows of one network, batch and budget: those that are folded, of which the fastest is named.
function foldedRuns(rest, shown) {
    const ran = rest.filter(ranRow), idle = rest.length - ran.length, [first] = ran;
    const count = (n) => n.toLocaleString('en');
    const least = Math.min(...rest.map((row) => numberOf(row.minimum_bytes, 0)).filter((bytes) => bytes > 0));
    const where = shown.length > 0 ?
        '' :
        [textOf(rest[0].net), 'batch ' + batchText(rest[0]), sizeText(numberOf(rest[0].budget_bytes))].join(', ') +
            ': ';
    return where + [
        ran.length > 0 &&
            `${count(ran.length)} more, the fastest of them ${policyText(first)} with ${rateText(speedOf(first))} ${
                speedUnit(first)}`,
        idle > 0 &&
            `${count(idle)} that did not run` +
                (shown.length + ran.length === 0 && isNumber(least) ? `, the least needs ${sizeText(least)}` : '')
    ].filter(Boolean).join('; ');
}

// In place of a speed: why there is none.
const absentCell = (row) =>
    (numberOf(row.minimum_bytes, 0) > 0 && doesNotFit(row) ?
         element('small', {class: 'absent'}, `needs ${sizeText(row.minimum_bytes)}`) :
         '–');

// Shows the status up to its first colon; the title has all of it.
const statusColumn = {
    name: 'status',
    title: 'ok, or why it did not run',
    of: (row) => textOf(row.status),
    cell: (row) => element(
        'span', {title: textOf(row.status)},
        chip(textOf(row.status).split(':')[0].slice(0, 40), row.status === 'ok' ? 'good' : 'bad'))
};

const batchText = (row) => textOf(row.batch) +
    (isNumber(row.sub_batch) && row.sub_batch > 0 && row.sub_batch < row.batch ? '/' + row.sub_batch : '');

// The columns in which some row has a value.
const filled = (columns, rows) => columns.filter((column) => rows.some((row) => {
    const value = column.of(row);
    return value !== null && value !== '' && value !== undefined;
}));

// Columns that say what a row is of. If all rows have the same value, the heading says it instead: text(row).
const SETTINGS = [
    {
        name: 'network',
        title: 'the network',
        of: (row) => textOf(row.net),
        cell: (row) => breakable(textOf(row.net)),
        text: (row) => textOf(row.net),
        below: true
    },
    {
        name: 'batch',
        title: 'images an iteration; after a slash, how many at a time',
        of: (row) => numberOf(row.batch),
        cell: batchText,
        text: (row) => 'batch ' + batchText(row),
        number: true,
        below: true
    },
];
const SOURCE = Object.assign(
    textColumn('figures', 'whether they were measured, and on which device', settingOf), {text: settingOf});

// {varied: the columns among `columns` that differ, heading: what all rows have in common}
function commonOf(columns, rows) {
    const same = (column) => new Set(rows.map((row) => column.text(row))).size < 2;
    return {
        varied: columns.filter((column) => !same(column)),
        heading: columns.filter(same).map((column) => column.text(rows[0])).filter(Boolean).join(', ')
    };
}

// A function that gives the greatest value among the rows of a row's group.
function greatestOf(rows, groupOf, of) {
    const greatest = new Map([...groupBy(rows, groupOf)].map(([group, own]) => [group, most(own.map(of))]));
    return (row) => greatest.get(groupOf(row));
}

// Rows in the order of networks and batches, then by the numbers that ofs give, the greatest first.
function ordered(rows, ...ofs) {
    const nets = [...new Set(rows.map((row) => textOf(row.net)))], place = (row) => nets.indexOf(textOf(row.net));
    const by = [(row) => -place(row), (row) => -numberOf(row.batch, 0), ...ofs];
    return [...rows].sort((a, b) => by.reduce((order, of) => order || of(b) - of(a), 0));
}

function addRuns(all) {
    if (all.length === 0) return;
    const rows = ordered(
        all, (row) => (ranRow(row) ? 1 : 0), (row) => numberOf(row.budget_bytes, 0),
        (row) => (ranRow(row) ? speedOf(row) : 0));
    const {varied, heading} = commonOf([...SETTINGS, SOURCE], rows);
    const units = [...new Set(rows.filter(ranRow).map(speedUnit))];
    const fastest = greatestOf(
        rows, (row) => [row.net, settingOf(row)].join(), (row) => (ranRow(row) ? numberOf(speedOf(row), 0) : 0));
    const share = (key) => (row) => (ranRow(row) ? numberOf(row[key]) : null);
    const speed = {
        name: units.join(', '),
        title: 'by the median step',
        number: true,
        of: (row) => (ranRow(row) ? speedOf(row) : null),
        predicted: isSimulated,
        cell: (row) => (ranRow(row) ? barCell(speedOf(row), fastest(row), rateText(speedOf(row))) : absentCell(row))
    };
    const timed = (name, title, key) => ({
        name,
        title,
        number: true,
        of: (row) => numberOf(row[key]) || null,
        cell: (row) => (numberOf(row[key]) ? timeText(1e6 * row[key]) : '–')
    });
    const ratio = (row) =>
        (numberOf(row.encoded_bytes, 0) > 0 && numberOf(row.coded_bytes, 0) > 0 ? row.encoded_bytes / row.coded_bytes :
                                                                                  null);
    const hidden = share('codec_hidden_share');
    const columns = filled(
        [
            policyColumn(
                isSimulated, varied.filter((column) => SETTINGS.includes(column)),
                (row) => isSimulated(row) && !rows.every(isSimulated) && chip('simulated', 'predicted')),
            speed,
            sizeColumn('budget', 'device memory that the run may use', 'budget_bytes'),
            ...varied,
            timed('step', 'median time of an iteration', 'iteration_seconds_median'),
            timed('p95', 'time of an iteration at the 95th percentile', 'iteration_seconds_p95'),
            Object.assign(
                timed('predicted', 'the simulator’s time of an iteration', 'iteration_seconds_predicted'),
                {predicted: () => true}),
            sizeColumn('needs', 'the smallest budget in which the policy runs', 'minimum_bytes'),
            sizeColumn('touched', 'memory that was written, as measured', 'peak_bytes'),
            sizeColumn('stash', 'held from the forward to the backward pass', 'stash_bytes'),
            sizeColumn('host', 'pinned host memory', 'pinned_bytes'),
            {
                name: 'hidden',
                title: 'share of the codecs’ time during which the computation did not wait',
                number: true,
                of: hidden,
                cell: (row) => percentText(hidden(row))
            },
            {
                name: 'ratio',
                title: 'bytes of maps over bytes of their codes',
                number: true,
                of: ratio,
                cell: (row) => (ratio(row) ? ratio(row).toFixed(1) + '×' : '–')
            },
            {
                name: 'loss',
                title: 'of the last iteration',
                number: true,
                of: (row) => numberOf(row.loss_last),
                cell: (row) => (isNumber(row.loss_last) ? row.loss_last.toFixed(3) : '–')
            },
            {
                name: 'accuracy',
                title: 'on the test data',
                number: true,
                of: (row) => numberOf(row.test_accuracy),
                cell: (row) => percentText(row.test_accuracy)
            },
            statusColumn,
        ],
        rows);
    const kinds =
        rows.flatMap((row) => [isSimulated(row) ? 'predicted' : 'measured', row.lossy === true ? 'lossy' : '']);
    section(
        'runs', 'Runs',
        'A row of “mm train” or “mm bench” each, by budget. A click on a column sorts by it. The bar below a speed is its ' +
            'share of the network’s fastest there.' +
            (kinds.includes('predicted') ? ' Slanted figures and hatched bars are predicted.' : ''))
        .append(
            ...[heading && element('h3', null, heading), markKey(kinds)].filter(Boolean),
            ...sortedTable('runs', columns, rows, {
                groupOf: (row) => [row.net, row.batch, row.budget_bytes].join(),
                folded: (row) => !ranRow(row),
                foldedText: foldedRuns
            }));
}

function addPlans(plans) {
    const rows = ordered(plans.map((plan) => plan.raw), (row) => numberOf(row.minimum_bytes, 0));
    if (rows.length === 0) return;
    const {varied, heading} = commonOf(SETTINGS, rows), always = () => true;
    const least = sizeColumn('needs', 'the smallest budget in which the policy runs', 'minimum_bytes');
    const largest = greatestOf(rows, (row) => [row.net, row.batch].join(), (row) => numberOf(row.minimum_bytes, 0));
    least.cell = (row) => barCell(numberOf(row.minimum_bytes, 0), largest(row), sizeText(row.minimum_bytes));
    least.predicted = always;
    const columns = filled(
        [
            policyColumn(
                always, varied,
                (row) => {
                    const made = doesNotFit(row) && chip('does not fit', 'bad');
                    if (made) made.title = textOf(row.status);
                    return made;
                }),
            least,
            {
                name: 'predicted',
                title: 'time of an iteration by the simulator',
                number: true,
                predicted: always,
                of: (row) => numberOf(row.iteration_seconds_predicted),
                cell: (row) =>
                    (isNumber(row.iteration_seconds_predicted) ? timeText(1e6 * row.iteration_seconds_predicted) : '–')
            },
            sizeColumn('budget', 'the budget that the plan was made for', 'budget_bytes'),
            ...varied,
            sizeColumn('planned', 'what the plan takes', 'predicted_peak_bytes'),
            sizeColumn('live', 'most bytes alive at once; no placement needs less', 'live_peak_bytes'),
            sizeColumn('stash', 'held from the forward to the backward pass', 'stash_bytes'),
            sizeColumn('host', 'pinned host memory', 'pinned_bytes'),
            sizeColumn('moved', 'bytes over the link in an iteration', 'moved_bytes'),
            {
                name: 'gap',
                title: 'how much longer the plan takes than the lower bound of all plans',
                number: true,
                of: (row) => numberOf(row.gap_permille),
                cell: (row) => (isNumber(row.gap_permille) ? percentText(row.gap_permille / 1000) : '–')
            },
            textColumn('held by', 'the step that needs most', (row) => textOf(row.held_by)),
            ...(rows.every((row) => row.status === 'ok' || doesNotFit(row)) ? [] : [statusColumn]),
        ],
        rows);
    const machines = [...new Set(rows.map((row) => textOf(row.machine)).filter(Boolean))].join(', ');
    section(
        'plans', 'Plans',
        `What each policy needs, as “mm plan” predicts${
            machines ? ` (${machines})` : ''}: nothing ran. The bar below ` +
            'a need is its share of the network’s greatest.')
        .append(
            ...[heading && element('h3', null, heading)].filter(Boolean),
            ...sortedTable('plans', columns, rows, {groupOf: (row) => [row.net, row.batch].join()}));
}
