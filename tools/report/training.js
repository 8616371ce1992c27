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
function iterationChart(points, yText, label, fromZero) {
    const figure = element('div', {class: 'chart'});
    let at = -1;

    function draw() {
        const width = figure.clientWidth, height = 220, margin = {left: 66, right: 14, top: 12, bottom: 38};
        if (width === 0) return;
        const first = points[0].x, last = points[points.length - 1].x;
        let low = fromZero ? 0 : Math.min(...points.map((p) => p.low)), high = Math.max(...points.map((p) => p.high));
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
        for (const value of ticksOf(low, high, 4, false)) {
            svg.append(element(
                'svg:line', {x1: margin.left, x2: width - margin.right, y1: y(value), y2: y(value), class: 'grid'}));
            text(margin.left - 8, y(value) + 4, 'end', yText(value));
        }
        let free = 0;
        for (const value of ticksOf(first, last, 6, false)) {
            if (value < first || x(value) - 16 < free) continue;
            text(x(value), height - margin.bottom + 18, 'middle', String(value));
            free = x(value) + 16;
        }
        text(width - margin.right, height - 5, 'end', 'iteration');
        const path = (of) =>
            points.map((p, i) => `${i ? 'L' : 'M'}${x(p.x).toFixed(1)} ${y(of(p)).toFixed(1)}`).join('');
        if (points.some((p) => p.n > 1)) {
            const back = [...points].reverse().map((p) => `L${x(p.x).toFixed(1)} ${y(p.low).toFixed(1)}`).join('');
            svg.append(element('svg:path', {class: 'spread', d: path((p) => p.high) + back + 'Z'}));
        }
        svg.append(element('svg:path', {class: 'line series0', d: path((p) => p.y)}));
        const ring = element('svg:circle', {r: 5, class: 'ring', visibility: 'hidden'});
        svg.append(ring);
        const show = (i) => {
            const p = points[i], box = svg.getBoundingClientRect();
            at = i;
            ring.setAttribute('cx', x(p.x));
            ring.setAttribute('cy', y(p.y));
            ring.setAttribute('visibility', 'visible');
            tip.show(
                box.left + x(p.x), box.top + y(p.y), `iteration ${p.x}`,
                [[label, yText(p.y)], p.n > 1 && [`of ${p.n} iterations`, `${yText(p.low)} to ${yText(p.high)}`]]);
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

// The curves of a log. A column that a log of an older mm lacks has no curve.
const TRAINING = [
    {name: 'loss', of: (line) => line.loss, text: plainText},
    {name: 'accuracy', of: (line) => line.accuracy, text: percentText, zero: true},
    {name: 'learning rate', of: (line) => line.lr, text: plainText, zero: true},
    {
        name: 'images/s',
        of: (line) => (line.seconds > 0 && isNumber(line.images) ? line.images / line.seconds : null),
        text: rateText,
        zero: true
    },
    {name: 'device memory by plan', of: (line) => line.planned_bytes, text: sizeText, zero: true},
];

function addTraining(logs) {
    const shown = logs.filter((log) => log.lines.length > 0);
    if (shown.length === 0) return;
    const made = section(
        'training', 'Training',
        'What “mm train --log” measured in each iteration. Images/s are those of the iteration, its wait for data included.');
    for (const log of shown) {
        const cards = TRAINING.map(({name, of, text, zero}) => ({name, text, zero, points: thinned(log.lines, of)}))
                          .filter(({points}) => points.length > 0)
                          .map(({name, text, zero, points}) => card(name, iterationChart(points, text, name, zero)));
        made.append(element('h3', null, log.source), element('div', {class: 'cards'}, cards));
    }
}
