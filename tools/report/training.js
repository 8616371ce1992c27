/* SPDX-License-Identifier: MIT */
// A training over its iterations, from logs: loss and accuracy, of training batches and of evaluations; learning rate,
// speed, memory.

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

const testPoints = (tests, valueOf) => thinned(tests, valueOf).map((p) => Object.assign(p, {test: true}));

// A curve over the iterations. The pale area shows the lowest and the highest of what a point stands for.
// curve: {name, text: value → text, tick: the same for the axis, zero: the axis begins there, binary: ticks are powers
// of two, predicted: the line is dashed, since nothing measured it}. tests: points of a second curve, of evaluations.
// levels: [{name, value, kind}], lines across. first, last: iterations, the same in all charts of a log.
function iterationChart({points, curve, tests, levels}, [first, last]) {
    const figure = element('div', {class: 'chart low'}), {name: label, text: yText} = curve;
    const all = [...points, ...tests].sort((a, b) => a.x - b.x);
    let at = -1;

    function draw() {
        const width = figure.clientWidth, height = 220, margin = {left: 66, right: 14, top: 12, bottom: 38};
        if (width === 0) return;
        const least = curve.zero ? 0 : Math.min(...all.map((p) => p.low)),
              greatest = Math.max(...all.map((p) => p.high), ...levels.map((level) => level.value));
        const {low, high, ticks} =
            axisOf(least, greatest === least ? least + (Math.abs(least) * 0.1 || 1) : greatest, 6, curve.binary);
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
        for (const value of ticks) {
            svg.append(element(
                'svg:line', {x1: margin.left, x2: width - margin.right, y1: y(value), y2: y(value), class: 'grid'}));
            text(
                margin.left - 8, y(value) + 4, 'end',
                value === 0 ? '0' : (curve.tick || yText)(+value.toPrecision(6), high));
        }
        let free = 0;
        for (const value of last > first ? ticksOf(first, last, 6, false) : [first]) {
            const half = String(value).length * 3.6, middle = Math.min(x(value), width - 2 - half);
            if (value < first || !Number.isInteger(value) || middle - half < free) continue;
            text(middle, height - margin.bottom + 18, 'middle', String(value));
            free = middle + half + 8;
        }
        text(width - margin.right, height - 5, 'end', 'iteration');
        const path = (of, list = points) =>
            list.map((p, i) => `${i ? 'L' : 'M'}${x(p.x).toFixed(1)} ${y(of(p)).toFixed(1)}`).join('');
        if (points.some((p) => p.n > 1)) {
            const back = [...points].reverse().map((p) => `L${x(p.x).toFixed(1)} ${y(p.low).toFixed(1)}`).join('');
            svg.append(element('svg:path', {class: 'spread', d: path((p) => p.high) + back + 'Z'}));
        }
        const dashed = curve.predicted ? ' dashed' : '';
        const dots = (list, series) => list.map(
            (p) => element(
                'svg:circle', {class: 'mark series' + series, r: list.length > 24 ? 2.5 : 4, cx: x(p.x), cy: y(p.y)}));
        const line = points.length > 1 ? [element('svg:path', {class: 'line series0' + dashed, d: path((p) => p.y)})] :
                                         dots(points, 0);
        const tested = tests.length === 0 ?
            [] :
            [element('svg:path', {class: 'line series1', d: path((p) => p.y, tests)}), ...dots(tests, 1)];
        const across = levels.map(
            ({kind, value}) => element(
                'svg:line',
                {x1: margin.left, x2: width - margin.right, y1: y(value), y2: y(value), class: 'line ' + kind}));
        // Where lines coincide, each is seen.
        svg.append(...across.slice(0, 1), ...line, ...across.slice(1), ...tested);
        const ring = element('svg:circle', {r: 5, class: 'ring', visibility: 'hidden'});
        svg.append(ring);
        const show = (i) => {
            const p = all[i], box = svg.getBoundingClientRect();
            at = i;
            ring.setAttribute('cx', x(p.x));
            ring.setAttribute('cy', y(p.y));
            ring.setAttribute('visibility', 'visible');
            tip.show(box.left + x(p.x), box.top + y(p.y), `iteration ${p.x}`, [
                [label +
                     (p.test              ? ', test data' :
                          curve.predicted ? ', planned' :
                                            ''),
                 yText(p.y)],
                p.n > 1 && [`of ${p.n} iterations`, `${yText(p.low)} to ${yText(p.high)}`]
            ]);
        };
        const leave = () => {
            ring.setAttribute('visibility', 'hidden');
            tip.hide();
        };
        svg.addEventListener('pointermove', (event) => {
            const box = svg.getBoundingClientRect(), px = event.clientX - box.left, py = event.clientY - box.top;
            // The nearest in x; an evaluation only if the pointer is at its mark.
            const far = (p) =>
                (p.test && Math.hypot(x(p.x) - px, y(p.y) - py) > 14 ? Infinity :
                     p.test                                          ? -1 :
                                                                       Math.abs(x(p.x) - px));
            show(all.reduce((best, p, i) => (far(p) < far(all[best]) ? i : best), 0));
        });
        svg.addEventListener('pointerleave', leave);
        svg.addEventListener('blur', leave);
        svg.addEventListener('keydown', (event) => {
            const by = {ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1}[event.key];
            if (event.key === 'Escape') leave();
            if (!by) return;
            event.preventDefault();
            show((at + by + all.length) % all.length);
        });
        figure.replaceChildren(svg);
    }

    new ResizeObserver(draw).observe(figure);
    return figure;
}

const plainText = (value) => String(+value.toPrecision(4));
const imageRate = (line) => (line.seconds > 0 && isNumber(line.images) ? line.images / line.seconds : null);

// The curves of a log; test: the same of an evaluation. A column that a log of an older mm lacks has no curve. An
// iteration without a plan yet has 0 planned bytes, which is not drawn.
const TRAINING = [
    {name: 'loss', of: (line) => line.loss, test: (line) => line.test_loss, text: plainText},
    {name: 'accuracy', of: (line) => line.accuracy, test: (line) => line.test_accuracy, text: percentText, zero: true},
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
    if (lines.length === 0) return null;
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

const lastOf = (points) => points[points.length - 1].y;
const levelName = (name) => (name === 'touched' ? 'touched, as measured' : name);

// Explains the lines of a chart that has several.
function lineKey({curve, points, tests, levels}) {
    const entry = (kind, mark, name, value) => element(
        'span', null,
        element(
            'svg:svg', {class: 'icon wide', viewBox: '-17 -9 34 18', 'aria-hidden': 'true'},
            element('svg:path', {d: 'M-17 0H17', class: 'line ' + kind}),
            mark && element('svg:circle', {class: 'mark ' + kind, r: 5})),
        name + ' ', element('b', null, value));
    const entries = curve.predicted ?
        [
            entry('series0 dashed', false, 'planned', sizeText(lastOf(points))),
            ...levels.map(({kind, name, value}) => entry(kind, false, levelName(name), sizeText(value)))
        ] :
        tests.length > 0 && [
            points.length > 0 && entry('series0', false, 'training batches, last', curve.text(lastOf(points))),
            entry('series1', true, 'test data, last', curve.text(lastOf(tests)))
        ];
    return entries ? element('p', {class: 'legend key-of-lines'}, entries) : null;
}

function captionOf({curve, tests}) {
    if (curve.predicted) return curve.name + ', as planned';
    return curve.name + (curve.test && tests.length === 0 ? ' of training batches' : '');
}

// Memory that the plan keeps the same throughout is told in words: a chart of it would be level lines.
function plannedFacts({points, levels}) {
    return [
        ['device memory planned', sizeText(lastOf(points))],
        ...levels.map(({name, value}) => [levelName(name), sizeText(value)])
    ];
}

function trainingFacts(row, tests, memory) {
    const best = most(tests.map((test) => test.test_accuracy), -1);
    const facts = [
        row && [speedUnit(row) + ' by the median', rateText(speedOf(row))],
        row && numberOf(row.test_accuracy) !== null && ['test accuracy at the end', percentText(row.test_accuracy)],
        tests.length > 1 && [`best of ${tests.length} evaluations`, percentText(best)],
        ...(memory ? plannedFacts(memory) : []), row && row.status !== 'ok' && ['status', textOf(row.status)]
    ].filter(Boolean);
    if (facts.length === 0) return null;
    return element(
        'p', {class: 'facts'}, row && row.lossy === true && chip('lossy'),
        facts.map(([label, value]) => element('span', null, label + ' ', element('b', null, value))));
}

const isLevel = ({curve, points}) => curve.predicted && points.every((p) => p.low === p.high && p.y === points[0].y);

function addTraining(logs, rows) {
    const shown = logs.filter((log) => log.lines.length + log.tests.length > 0);
    if (shown.length === 0) return;
    const made = section(
        'training', 'Training',
        'What “mm train --log” measured in each iteration; the speed is that of the iteration, its wait for data included. ' +
            'Planned memory is predicted.');
    for (const {source, lines, tests} of shown) {
        const row = rowOfLog(lines, rows), iterations = [...lines, ...tests].map((line) => line.iteration);
        const span = [iterations.reduce((a, b) => Math.min(a, b)), most(iterations)];
        const curves = curvesOf(lines, row)
                           .map((curve) => ({
                                    curve,
                                    points: thinned(lines, curve.of),
                                    tests: curve.test ? testPoints(tests, curve.test) : [],
                                    levels: levelsOf(curve, row)
                                }))
                           .filter(({points, tests: own}) => points.length + own.length > 0);
        const cards = curves.filter((one) => !isLevel(one))
                          .map((one) => card(captionOf(one), iterationChart(one, span), lineKey(one)));
        made.append(
            element(
                'h3', null,
                row ? titleOf(`${textOf(row.net)}, batch ${batchText(row)}, ${policyText(row)}`, [row]) + ' ' : '',
                row ? element('span', {class: 'from'}, source) : source),
            ...[trainingFacts(row, tests, curves.find(isLevel)),
                element('div', {class: 'cards' + (cards.length % 2 ? ' three' : '')}, cards)]
                .filter(Boolean));
    }
}
