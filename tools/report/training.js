/* SPDX-License-Identifier: MIT */
// A training over its iterations, from logs: loss, accuracy, learning rate, speed, memory.

const POINTS = 800;  // most points of a curve; of more, each is the mean of some iterations

// Means of neighbours, so that at most POINTS points are left: {x, y, low, high, n}. A value that is not a number is
// left out.
function thinned(lines, valueOf) {
    const points = [], each = Math.max(1, Math.ceil(lines.length / POINTS));
    for (let i = 0; i < lines.length; i += each) {
        const part = lines.slice(i, i + each), ys = part.map(valueOf).filter(isNumber);
        if (ys.length === 0) continue;
        points.push({
            x: part[part.length - 1].iteration,
            y: ys.reduce((a, b) => a + b, 0) / ys.length,
            low: Math.min(...ys),
            high: Math.max(...ys),
            n: ys.length
        });
    }
    return points;
}

// A curve over the iterations. The pale area shows the lowest and the highest of what a point stands for.
// curve: {name, text: value → text, tick: the same for the axis, zero: the axis begins there, binary: ticks are powers
// of two, predicted: the line is dashed, since nothing measured it}. levels: [{name, value, kind}], lines across.
// first, last: iterations, the same in all charts of a log.
function iterationChart(points, curve, levels, [first, last]) {
    const figure = element('div', {class: 'chart low'}), {name: label, text: yText} = curve;
    let at = -1;

    function draw() {
        const width = figure.clientWidth, height = 220, margin = {left: 66, right: 14, top: 12, bottom: 38};
        if (width === 0) return;
        let low = curve.zero ? 0 : Math.min(...points.map((p) => p.low)),
            high = Math.max(...points.map((p) => p.high), ...levels.map((level) => level.value));
        if (high === low) high = low + (Math.abs(low) * 0.1 || 1);
        high += (high - low) * 0.05;
        const x = (value) => margin.left +
            (last > first ? (value - first) / (last - first) : 0.5) * (width - margin.left - margin.right),
              y = (value) =>
                  height - margin.bottom - (value - low) / (high - low) * (height - margin.top - margin.bottom);
        const svg = element('svg:svg', {
            width,
            height,
            viewBox: `0 0 ${width} ${height}`,
            tabindex: 0,
            role: 'application',
            'aria-label': label + ' over the iterations; arrow keys go from point to point'
        });
        const text = (tx, ty, anchor, what) =>
            svg.append(element('svg:text', {x: tx, y: ty, 'text-anchor': anchor, class: 'tick'}, what));
        for (const value of ticksOf(low, high, 6, curve.binary)) {
            svg.append(element(
                'svg:line', {x1: margin.left, x2: width - margin.right, y1: y(value), y2: y(value), class: 'grid'}));
            text(margin.left - 8, y(value) + 4, 'end', value === 0 ? '0' : (curve.tick || yText)(value, high));
        }
        let free = 0;
        for (const value of ticksOf(first, last, 6, false)) {
            const half = String(value).length * 3.6, middle = Math.min(x(value), width - 2 - half);
            if (value < first || !Number.isInteger(value) || middle - half < free) continue;
            text(middle, height - margin.bottom + 18, 'middle', String(value));
            free = middle + half + 8;
        }
        text(width - margin.right, height - 5, 'end', 'iteration');
        const path = (of) =>
            points.map((p, i) => `${i ? 'L' : 'M'}${x(p.x).toFixed(1)} ${y(of(p)).toFixed(1)}`).join('');
        if (points.some((p) => p.n > 1)) {
            const back = [...points].reverse().map((p) => `L${x(p.x).toFixed(1)} ${y(p.low).toFixed(1)}`).join('');
            svg.append(element('svg:path', {class: 'spread', d: path((p) => p.high) + back + 'Z'}));
        }
        const dashed = curve.predicted ? ' dashed' : '';
        const line = points.length > 1 ?
            element('svg:path', {class: 'line series0' + dashed, d: path((p) => p.y)}) :
            element('svg:circle', {class: 'mark series0', r: 4, cx: x(points[0].x), cy: y(points[0].y)});
        const across = levels.map(
            ({kind, value}) => element(
                'svg:line',
                {x1: margin.left, x2: width - margin.right, y1: y(value), y2: y(value), class: 'line ' + kind}));
        svg.append(...across.slice(0, 1), line, ...across.slice(1));  // where lines coincide, each is seen
        const ring = element('svg:circle', {r: 5, class: 'ring', visibility: 'hidden'});
        svg.append(ring);
        const show = (i) => {
            const p = points[i], box = svg.getBoundingClientRect();
            at = i;
            ring.setAttribute('cx', x(p.x));
            ring.setAttribute('cy', y(p.y));
            ring.setAttribute('visibility', 'visible');
            tip.show(box.left + x(p.x), box.top + y(p.y), `iteration ${p.x}`, [
                [label + (curve.predicted ? ', planned' : ''), yText(p.y)],
                p.n > 1 && [`of ${p.n} iterations`, `${yText(p.low)} to ${yText(p.high)}`]
            ]);
        };
        const leave = () => {
            ring.setAttribute('visibility', 'hidden');
            tip.hide();
        };
        svg.addEventListener('pointermove', (event) => {
            const px = event.clientX - svg.getBoundingClientRect().left;
            let best = 0;
            points.forEach((p, i) => {
                if (Math.abs(x(p.x) - px) < Math.abs(x(points[best].x) - px)) best = i;
            });
            show(best);
        });
        svg.addEventListener('pointerleave', leave);
        svg.addEventListener('blur', leave);
        svg.addEventListener('keydown', (event) => {
            const by = {ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1}[event.key];
            if (event.key === 'Escape') leave();
            if (!by) return;
            event.preventDefault();
            show((at + by + points.length) % points.length);
        });
        figure.replaceChildren(svg);
    }

    new ResizeObserver(draw).observe(figure);
    return figure;
}

const plainText = (value) => String(+value.toPrecision(4));
const imageRate = (line) => (line.seconds > 0 && isNumber(line.images) ? line.images / line.seconds : null);

// The curves of a log. A column that a log of an older mm lacks has no curve. An iteration without a plan yet has 0
// planned bytes, which is not drawn.
const TRAINING = [
    {name: 'loss', of: (line) => line.loss, text: plainText},
    {name: 'accuracy', of: (line) => line.accuracy, text: percentText, zero: true},
    {name: 'learning rate', of: (line) => line.lr, text: plainText, zero: true},
    {name: 'images/s', of: imageRate, text: rateText, tick: rateTick, zero: true, speed: true},
    {
        name: 'device memory',
        of: (line) => line.planned_bytes || null,
        text: sizeText,
        zero: true,
        binary: true,
        predicted: true
    },
];

const near = (a, b) =>
    (isNumber(a) && isNumber(b) ? Math.abs(a - b) <= 2e-5 * Math.abs(b) : !isNumber(a) && !isNumber(b));

// The row of the run that wrote the log: with as many iterations, and the same losses and plan. null: none, or several.
function rowOfLog(lines, rows) {
    const first = lines[0], last = lines[lines.length - 1];
    const found = rows.filter(
        (row) => row.simulated !== true && row.iterations === lines.length && near(first.loss, row.loss_first) &&
            near(last.loss, row.loss_last) && (!last.planned_bytes || last.planned_bytes === row.predicted_peak_bytes));
    return found.length === 1 ? found[0] : null;
}

// The curves of a log. Its row, where there is one, says which unit the speed has, and what memory was measured.
function curvesOf(lines, row) {
    const tokens = row && ofTokens(row) ? row.tokens_per_second / row.images_per_second : 0;
    return TRAINING.map(
        (curve) =>
            (curve.speed && tokens > 0 ?
                 Object.assign(
                     {}, curve,
                     {name: 'tokens/s', of: (line) => (isNumber(imageRate(line)) ? tokens * imageRate(line) : null)}) :
                 curve));
}

// Levels beside the planned memory. A budget that is just what the plan takes is left out: without --budget it is none.
function levelsOf(curve, row) {
    if (!curve.predicted || !row) return [];
    const budget = row.budget_bytes === row.predicted_peak_bytes ? 0 : numberOf(row.budget_bytes, 0);
    return [
        {name: 'touched', value: numberOf(row.peak_bytes, 0), kind: 'level-touched'},
        {name: 'budget', value: budget, kind: 'level-budget'},
    ].filter((level) => level.value > 0);
}

// Explains the lines of the memory's chart.
function memoryKey(curve, points, levels) {
    const entry = (kind, name, value) => element(
        'span', null,
        element(
            'svg:svg', {class: 'icon wide', viewBox: '-17 -9 34 18', 'aria-hidden': 'true'},
            element('svg:path', {d: 'M-17 0H17', class: 'line ' + kind})),
        name + ' ', element('b', null, sizeText(value)));
    return element(
        'p', {class: 'legend key-of-lines'}, entry('series0 dashed', 'planned', points[points.length - 1].y),
        levels.map(({kind, name, value}) => entry(kind, name === 'touched' ? 'touched, as measured' : name, value)));
}

function rowFacts(row) {
    const facts = [
        [speedUnit(row) + ' by the median', rateText(speedOf(row))],
        numberOf(row.test_accuracy) !== null && ['test accuracy', percentText(row.test_accuracy)],
        row.status !== 'ok' && ['status', textOf(row.status)]
    ];
    return element(
        'p', {class: 'facts'}, row.lossy === true && chip('lossy'),
        facts.filter(Boolean).map(([label, value]) => element('span', null, label + ' ', element('b', null, value))));
}

function addTraining(logs, rows) {
    const shown = logs.filter((log) => log.lines.length > 0);
    if (shown.length === 0) return;
    const made = section(
        'training', 'Training',
        'What “mm train --log” measured in each iteration; the speed is that of the iteration, its wait for data included. ' +
            'Planned memory is predicted: a dashed line.');
    for (const {source, lines} of shown) {
        const row = rowOfLog(lines, rows), span = [lines[0].iteration, lines[lines.length - 1].iteration];
        const cards = curvesOf(lines, row)
                          .map((curve) => ({curve, points: thinned(lines, curve.of), levels: levelsOf(curve, row)}))
                          .filter(({points}) => points.length > 0)
                          .map(
                              ({curve, points, levels}) => card(
                                  curve.name, iterationChart(points, curve, levels, span),
                                  curve.predicted && memoryKey(curve, points, levels)));
        made.append(
            element(
                'h3', null,
                row ? titleOf(`${textOf(row.net)}, batch ${batchText(row)}, ${policyText(row)}`, [row]) + ' ' : '',
                row ? element('span', {class: 'from'}, source) : source),
            ...[row && rowFacts(row), element('div', {class: 'cards three'}, cards)].filter(Boolean));
    }
}
