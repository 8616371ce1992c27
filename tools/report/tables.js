/* SPDX-License-Identifier: MIT */
// Tables of runs, of plans, and of maps with the decision for each. A click on a column sorts them.

const FIRST_ROWS = 40;  // shown before "show all"

// columns: {name, title, of(row): value to sort by, cell(row): a node or a text, number: whether values are numbers}
function sortedTable(label, columns, rows, sortColumn, descending) {
    const state = {column: sortColumn, descending, all: false, filter: ''};
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
        return element('th', {scope: 'col', class: column.number ? 'number' : null}, button);
    });
    const compare = (a, b) => {
        const x = state.column.of(a), y = state.column.of(b),
              missing = (v) => v === null || v === undefined || v === '';
        if (missing(x) || missing(y)) return missing(x) - missing(y);  // missing values come last in both directions
        const order = isNumber(x) && isNumber(y) ? x - y : String(x).localeCompare(String(y), 'en', {numeric: true});
        return state.descending ? -order : order;
    };
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
        const shown = state.all ? found : found.slice(0, FIRST_ROWS);
        body.replaceChildren(...shown.map(
            (row) => element(
                'tr', null,
                columns.map(
                    (column, i) => element(
                        i === 0 ? 'th' : 'td', {class: column.number ? 'number' : null, scope: i === 0 ? 'row' : null},
                        column.cell(row))))));
        more.hidden = shown.length === found.length;
        more.textContent = `show all ${found.length.toLocaleString('en')} rows`;
    }
    fill();
    const box = element(
        'div', {class: 'table', tabindex: 0, role: 'region', 'aria-label': label},
        element('table', null, element('thead', null, element('tr', null, heads)), body));
    const filter = rows.length > 12 && element('input', {
                       type: 'search',
                       placeholder: 'filter, such as conv swap',
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

function barCell(value, whole, text) {
    return element(
        'span', {class: 'share', style: `--share: ${clamp(whole > 0 ? value / whole : 0, 0, 1).toFixed(3)}`}, text);
}

function idleChip(why) {
    const made = chip('acts on nothing', 'bad');
    made.title = why;
    return made;
}

const policyColumn = {
    name: 'policy',
    title: 'the policy as it was asked for',
    of: (row) => textOf(row.policy),
    cell: (row) => element(
        'span', {class: 'policy'}, markIcon(seriesOf(textOf(row.policy))), element('span', null, textOf(row.policy)),
        row.lossy === true ? chip('lossy') : null, row.idle ? idleChip(textOf(row.idle)) : null)
};

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

function addRuns(rows) {
    if (rows.length === 0) return;
    const units = [...new Set(rows.filter(ranRow).map(speedUnit))];
    const fastest = most(rows.map((row) => numberOf(speedOf(row), 0)));
    const share = (key) => (row) => (ranRow(row) ? numberOf(row[key]) : null);
    const speed = {
        name: units.join(', '),
        title: 'by the median step',
        number: true,
        of: (row) => (ranRow(row) ? speedOf(row) : null),
        cell: (row) => (ranRow(row) ? barCell(speedOf(row), fastest, rateText(speedOf(row))) : '–')
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
            policyColumn,
            textColumn('network', 'the network', (row) => textOf(row.net)),
            {
                name: 'batch',
                title: 'images an iteration; after a slash, how many at a time',
                of: (row) => numberOf(row.batch),
                cell: batchText,
                number: true
            },
            statusColumn,
            speed,
            timed('step', 'median time of an iteration', 'iteration_seconds_median'),
            timed('p95', 'time of an iteration at the 95th percentile', 'iteration_seconds_p95'),
            timed('predicted', 'the simulator’s time of an iteration', 'iteration_seconds_predicted'),
            sizeColumn('budget', 'device memory that the run may use', 'budget_bytes'),
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
        ],
        rows);
    section('runs', 'Runs', 'A row of “mm train” or “mm bench” each. A click on a column sorts by it.')
        .append(...sortedTable('runs', columns, rows, speed, true));
}

function addPlans(plans) {
    const rows = plans.map((plan) => plan.raw);
    if (rows.length === 0) return;
    const least = sizeColumn('needs', 'the smallest budget in which the policy runs', 'minimum_bytes');
    const largest = most(rows.map((row) => numberOf(row.minimum_bytes, 0)));
    least.cell = (row) => barCell(numberOf(row.minimum_bytes, 0), largest, sizeText(row.minimum_bytes));
    const columns = filled(
        [
            policyColumn,
            textColumn('network', 'the network', (row) => textOf(row.net)),
            {
                name: 'batch',
                title: 'images an iteration',
                of: (row) => numberOf(row.batch),
                cell: batchText,
                number: true
            },
            least,
            sizeColumn('budget', 'the budget that the plan was made for', 'budget_bytes'),
            sizeColumn('planned', 'what the plan takes', 'predicted_peak_bytes'),
            sizeColumn('live', 'most bytes alive at once; no placement needs less', 'live_peak_bytes'),
            sizeColumn('stash', 'held from the forward to the backward pass', 'stash_bytes'),
            sizeColumn('host', 'pinned host memory', 'pinned_bytes'),
            sizeColumn('moved', 'bytes over the link in an iteration', 'moved_bytes'),
            {
                name: 'predicted',
                title: 'time of an iteration by the simulator',
                number: true,
                of: (row) => numberOf(row.iteration_seconds_predicted),
                cell: (row) =>
                    (isNumber(row.iteration_seconds_predicted) ? timeText(1e6 * row.iteration_seconds_predicted) : '–')
            },
            {
                name: 'gap',
                title: 'how much longer the plan takes than the lower bound of all plans',
                number: true,
                of: (row) => numberOf(row.gap_permille),
                cell: (row) => (isNumber(row.gap_permille) ? percentText(row.gap_permille / 1000) : '–')
            },
            textColumn('held by', 'the step that needs most', (row) => textOf(row.held_by)),
            statusColumn,
        ],
        rows);
    const machines = [...new Set(rows.map((row) => textOf(row.machine)).filter(Boolean))].join(', ');
    section('plans', 'Plans', `What each policy needs, as “mm plan” predicts${machines ? ' for ' + machines : ''}.`)
        .append(...sortedTable('plans', columns, rows, least, true));
}

// ---------------------------------------------------------------- maps

const secondsText = (seconds) => (isNumber(seconds) && seconds > 0 ? ', ' + timeText(1e6 * seconds) : '');

function decisionTitle(map) {
    return [
        map.codec && 'codec ' + map.codec,
        `held between the passes: ${sizeText(map.held || 0)}${secondsText(map.seconds)}`,
        map.others && map.others.length > 0 && 'could be:',
        ...(map.others || [])
            .map(
                (one) => `  ${one.action}${one.codec ? ' by ' + one.codec : ''}: ${sizeText(one.left)} left${
                    secondsText(one.seconds)}`)
    ].filter(Boolean)
        .join('\n');
}

function decisionCell(map) {
    if (!map) return '–';
    return element(
        'span', {class: 'decision', title: decisionTitle(map)},
        map.actions.length > 0 ? map.actions.map((action) => chip(action, 'act-' + action)) : chip('none'),
        element('small', null, sizeText(map.held || 0)));
}

// Adds a table for each network and batch, with a column for each plan.
function addMaps(all) {
    const planned = [
        ...all.plans.filter((plan) => plan.picture)
            .map(({raw, picture}) => ({
                     group: `${textOf(raw.net)}, batch ${textOf(raw.batch)}`,
                     policy: textOf(raw.policy),
                     rest: numberOf(raw.budget_bytes, 0) > 0 ? sizeText(raw.budget_bytes) : '',
                     picture
                 })),
        ...all.runs.filter((run) => run.picture),
    ].filter((one) => one.picture.maps.length > 0);
    if (planned.length === 0) return;
    const made = section(
        'maps', 'Maps and decisions',
        'Feature maps that wait for the backward pass, what each plan does with them, and the bytes that it holds ' +
            'of them meanwhile.');
    for (const [group, plans] of groupBy(planned, (one) => one.group)) {
        const maps = new Map();
        for (const plan of plans)
            for (const map of plan.picture.maps)
                if (!maps.has(map.name)) maps.set(map.name, map);
        const size = {
            name: 'size',
            title: 'bytes of the map',
            number: true,
            of: (map) => map.bytes,
            cell: (map) => barCell(map.bytes, largest, sizeText(map.bytes))
        };
        const rows = [...maps.values()], largest = most(rows.map((map) => map.bytes));
        const columns = [
            textColumn('map', 'the tensor', (map) => map.name),
            textColumn('made by', 'kind of the layer that writes it', (map) => map.kind),
            size,
            {
                name: 'read by',
                title: 'steps of the backward pass that read it',
                of: (map) => map.readers.join(', '),
                cell: (map) => element(
                    'span', {title: map.readers.join('\n')},
                    map.readers.length > 1 ? `${map.readers[0]} +${map.readers.length - 1}` : map.readers[0] || '')
            },
            ...plans.map((plan) => {
                const of = (map) => plan.picture.decisions.get(map.name);
                return {
                    name: plan.policy + (plan.rest ? ', ' + plan.rest : ''),
                    title: 'what this plan does with the map',
                    of: (map) => (of(map) ? of(map).actions.join(' + ') + ' ' + of(map).codec : ''),
                    cell: (map) => decisionCell(of(map))
                };
            }),
        ];
        made.append(
            element('h3', null, `${group}: ${rows.length.toLocaleString('en')} maps`),
            ...sortedTable('maps of ' + group, columns, rows, size, true));
    }
}
