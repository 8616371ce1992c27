/* SPDX-License-Identifier: MIT */
// Tables of feature maps, with what each plan does with them.

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
            'of them meanwhile.',
        'Maps');
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
            Object.assign(
                textColumn('map', 'the tensor', (map) => map.name),
                {cell: (map) => element('span', null, breakable(map.name))}),
            size,
            ...plans.map((plan) => {
                const of = (map) => plan.picture.decisions.get(map.name);
                return {
                    name: plan.policy + (plan.rest ? ', ' + plan.rest : ''),
                    title: 'what this plan does with the map',
                    of: (map) => (of(map) ? of(map).actions.join(' + ') + ' ' + of(map).codec : ''),
                    cell: (map) => decisionCell(of(map))
                };
            }),
            textColumn('made by', 'kind of the layer that writes it', (map) => map.kind),
            {
                name: 'read by',
                title: 'steps of the backward pass that read it',
                of: (map) => map.readers.join(', '),
                cell: (map) => element(
                    'span', {title: map.readers.join('\n')},
                    map.readers.length > 1 ? `${map.readers[0]} +${map.readers.length - 1}` : map.readers[0] || '')
            },
        ];
        made.append(
            element('h3', null, `${group}: ${rows.length.toLocaleString('en')} maps`),
            ...sortedTable('maps of ' + group, columns, rows, {sortColumn: size}));
    }
}
