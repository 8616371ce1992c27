/* SPDX-License-Identifier: MIT */
// Curves of throughput over the budget and over the batch, from rows.

const ranRow = (row) => isNumber(row.images_per_second) && row.images_per_second > 0;

// Networks of tokens are measured in tokens/s, others in images/s.
const ofTokens = (row) => isNumber(row.tokens_per_second);
const speedOf = (row) => (ofTokens(row) ? row.tokens_per_second : row.images_per_second);
const speedUnit = (row) => (ofTokens(row) ? 'tokens/s' : 'images/s');

function groupBy(list, keyOf) {
    const groups = new Map();
    for (const one of list) {
        const key = keyOf(one);
        if (!groups.has(key)) groups.set(key, []);
        groups.get(key).push(one);
    }
    return groups;
}

// A chart with a curve for each series. points: [{series, name, x, y, row, title, lines}]; title and lines: of the tip.
// stepped: x has ticks at the points only.
function curveChart({points, xText, xLabel, label, stepped}) {
    const figure = element('div', {class: 'chart'});
    const hidden = new Set();
    let at = -1, dots = [];

    function scaleOf(width, height) {
        const margins = {left: 58, right: 16, top: 26, bottom: 44};
        const xs = points.map((p) => p.x), low = Math.min(...xs), high = Math.max(...xs);
        const log = high > 6 * low;
        const across = (x) => (log ? Math.log2(x) : x),
              pad = (across(high) - across(low)) * 0.06 || Math.abs(across(low)) * 0.2 || 1;
        const a = across(low) - pad, b = across(high) + pad;
        const top = Math.max(...points.map((p) => p.y)) * 1.1;
        const ticks = log ?
            ticksOf(Math.ceil(across(low)), across(high), 7, true).filter(Number.isInteger).map((t) => 2 ** t) :
            stepped ? [...new Set(xs)] :
                      ticksOf(a, b, 6, true);
        return {
            margins,
            top,
            ticks,
            x: (value) => margins.left + (across(value) - a) / (b - a) * (width - margins.left - margins.right),
            y: (value) => height - margins.bottom - value / top * (height - margins.top - margins.bottom)
        };
    }

    function draw() {
        const width = figure.clientWidth, height = 300;
        if (width === 0) return;
        const s = scaleOf(width, height);
        const svg = element('svg:svg', {
            width,
            height,
            viewBox: `0 0 ${width} ${height}`,
            tabindex: 0,
            role: 'application',
            'aria-label': label + '; arrow keys go from point to point'
        });
        const text = (x, y, anchor, what, kind) =>
            svg.append(element('svg:text', {x, y, 'text-anchor': anchor, class: kind || 'tick'}, what));
        for (const y of ticksOf(0, s.top, 5, false)) {
            svg.append(element(
                'svg:line', {x1: s.margins.left, x2: width - s.margins.right, y1: s.y(y), y2: s.y(y), class: 'grid'}));
            text(s.margins.left - 8, s.y(y) + 4, 'end', y >= 1e4 ? y / 1000 + 'k' : String(+y.toPrecision(6)));
        }
        let free = -Infinity;
        for (const x of s.ticks) {
            const what = xText(x), half = what.length * 3.4;
            if (s.x(x) - half < Math.max(free, s.margins.left - 20) || s.x(x) + half > width) continue;
            svg.append(element('svg:line', {
                x1: s.x(x),
                x2: s.x(x),
                y1: height - s.margins.bottom,
                y2: height - s.margins.bottom + 5,
                class: 'axis'
            }));
            text(s.x(x), height - s.margins.bottom + 19, 'middle', what);
            free = s.x(x) + half + 10;
        }
        svg.append(element('svg:line', {
            x1: s.margins.left,
            x2: width - s.margins.right,
            y1: height - s.margins.bottom,
            y2: height - s.margins.bottom,
            class: 'axis'
        }));
        text(8, 14, 'start', speedUnit(points[0].row), 'name');
        text(width - s.margins.right, height - 6, 'end', xLabel, 'name');
        dots = [];
        for (const [series, all] of groupBy(points, (p) => p.series)) {
            if (hidden.has(series)) continue;
            const line = [...all].sort((p, q) => p.x - q.x);
            svg.append(element('svg:path', {
                class: 'line series' + series % SERIES + (series >= SERIES ? ' dashed' : ''),
                d: line.map((p, i) => `${i ? 'L' : 'M'}${s.x(p.x).toFixed(1)} ${s.y(p.y).toFixed(1)}`).join('')
            }));
            for (const p of line) {
                const mark = markOf(series);
                mark.setAttribute('transform', `translate(${s.x(p.x).toFixed(1)} ${s.y(p.y).toFixed(1)})`);
                svg.append(mark);
                dots.push({p, mark, x: s.x(p.x), y: s.y(p.y)});
            }
        }
        const ring = element('svg:circle', {r: 9, class: 'ring', visibility: 'hidden'});
        svg.append(ring);
        listen(svg, ring);
        const focused = figure.firstChild && figure.firstChild === document.activeElement;
        figure.replaceChildren(svg);
        if (focused) svg.focus();
    }

    function listen(svg, ring) {
        const show = (dot) => {
            const box = svg.getBoundingClientRect();
            ring.setAttribute('cx', dot.x);
            ring.setAttribute('cy', dot.y);
            ring.setAttribute('visibility', 'visible');
            const same = dots.filter((other) => other !== dot && Math.hypot(other.x - dot.x, other.y - dot.y) < 7);
            tip.show(
                box.left + dot.x, box.top + dot.y, dot.p.title,
                [...dot.p.lines, same.length > 0 && 'also here: ' + same.map((other) => other.p.title).join(', ')]);
        };
        const leave = () => {
            ring.setAttribute('visibility', 'hidden');
            tip.hide();
        };
        svg.addEventListener('pointermove', (event) => {
            const box = svg.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
            const near = dots.map((dot) => [Math.hypot(dot.x - x, dot.y - y), dot]).sort((a, b) => a[0] - b[0])[0];
            if (near && near[0] < 40)
                show(near[1]);
            else
                leave();
        });
        svg.addEventListener('pointerleave', leave);
        svg.addEventListener('blur', leave);
        svg.addEventListener('keydown', (event) => {
            const by = {ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1}[event.key];
            if (event.key === 'Escape') leave();
            if (!by || dots.length === 0) return;
            event.preventDefault();
            at = (at + by + dots.length) % dots.length;
            show(dots[at]);
        });
    }

    const names = new Map(points.map((p) => [p.series, p.name]));
    const legend = element(
        'div', {class: 'legend', role: 'group', 'aria-label': 'Policies shown'}, [...names].map(([series, name]) => {
            const button = element(
                'button', {
                    type: 'button',
                    'aria-pressed': 'true',
                    onclick: () => {
                        if (!hidden.delete(series)) hidden.add(series);
                        button.setAttribute('aria-pressed', String(!hidden.has(series)));
                        draw();
                    }
                },
                markIcon(series), name);
            return button;
        }));
    new ResizeObserver(draw).observe(figure);
    return [figure, legend];
}

function rowPoint(row, x) {
    const policy = textOf(row.policy);
    return {
        series: seriesOf(policy),
        name: policy + (row.lossy === true ? ' (lossy)' : ''),
        x,
        y: speedOf(row),
        row,
        title: policy,
        lines: [
            [speedUnit(row), rateText(speedOf(row))], ['step', timeText(1e6 * numberOf(row.iteration_seconds_median))],
            ['batch', textOf(row.batch)], ['budget', sizeText(row.budget_bytes)],
            ['touched', sizeText(row.peak_bytes || row.predicted_peak_bytes)],
            numberOf(row.pinned_bytes, 0) > 0 && ['pinned host memory', sizeText(row.pinned_bytes)],
            row.simulated === true && 'simulated'
        ]
    };
}

// Names the policies that did not run in some of the budgets, with the smallest budget that each needs.
function absentText(rows) {
    const absent =
        [...groupBy(rows.filter((row) => !ranRow(row)), (row) => textOf(row.policy))].map(([policy, all]) => {
            const least = Math.min(...all.map((row) => numberOf(row.minimum_bytes, 0)).filter((bytes) => bytes > 0));
            return isNumber(least) ? `${policy} (needs ${sizeText(least)})` : policy;
        });
    return absent.length > 0 ? 'Does not run in every budget: ' + absent.join(', ') + '.' : null;
}

function card(title, ...children) {
    return element('figure', {class: 'card'}, element('figcaption', null, title), children);
}

const settingOf = (rows) => {
    const row = rows[0], device = textOf(row.device);
    return (device ? ` on ${device}` : '') + (rows.every((one) => one.simulated === true) ? ', simulated' : '');
};

function budgetCards(rows) {
    return [...groupBy(rows, (row) => `${textOf(row.net)}, batch ${textOf(row.batch)}`)]
        .map(([name, all]) => {
            const points = all.filter((row) => ranRow(row) && numberOf(row.budget_bytes, 0) > 0)
                               .map((row) => rowPoint(row, row.budget_bytes));
            const batches = new Set(rows.filter((row) => row.net === all[0].net).map((row) => row.batch)).size;
            const budgets = new Set(points.map((p) => p.x)).size;
            if (budgets === 0 || (budgets === 1 && batches > 1))
                return null;  // one budget is no curve, and batchCards draws these rows
            const absent = absentText(all);
            return card(
                `${name}${settingOf(all)}: throughput over the budget`, curveChart({
                    points,
                    xText: sizeText,
                    xLabel: 'budget',
                    label: `${name}: ${speedUnit(points[0].row)} over the budget`
                }),
                absent && element('p', {class: 'note'}, absent));
        })
        .filter(Boolean);
}

// If a policy ran a batch in several budgets, its fastest run is shown.
function batchCards(rows) {
    return [...groupBy(rows.filter((row) => ranRow(row) && isNumber(row.batch)), (row) => textOf(row.net))]
        .map(([name, all]) => {
            if (new Set(all.map((row) => row.batch)).size < 2) return null;
            const fastest = [...groupBy(all, (row) => textOf(row.policy) + ' ' + row.batch).values()].map(
                (same) => same.reduce((a, b) => (b.images_per_second > a.images_per_second ? b : a)));
            return card(`${name}${settingOf(all)}: throughput over the batch`, curveChart({
                            points: fastest.map((row) => rowPoint(row, row.batch)),
                            xText: String,
                            xLabel: 'batch',
                            label: `${name}: ${speedUnit(fastest[0])} over the batch`,
                            stepped: true
                        }));
        })
        .filter(Boolean);
}

function addCurves(rows) {
    const cards = [...batchCards(rows), ...budgetCards(rows)];
    if (cards.length === 0) return;
    section(
        'throughput', 'Throughput',
        'Images or tokens per second of each policy, by the median step. Point at a mark for its figures; a click in the ' +
            'legend hides a policy.')
        .append(element('div', {class: 'cards' + (cards.length === 1 ? ' one' : '')}, cards));
}
