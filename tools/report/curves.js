/* SPDX-License-Identifier: MIT */
// Curves of throughput over the budget and over the batch, from rows; bars, where a line would have two points. What
// was measured has a solid line and filled marks, what is predicted a dashed line and hollow marks.

const ranRow = (row) => isNumber(row.images_per_second) && row.images_per_second > 0;

// Networks of tokens are measured in tokens/s, others in images/s.
const ofTokens = (row) => isNumber(row.tokens_per_second);
const speedOf = (row) => (ofTokens(row) ? row.tokens_per_second : row.images_per_second);
const speedUnit = (row) => (ofTokens(row) ? 'tokens/s' : 'images/s');

// The speed by the simulator, of a row that was measured and predicted.
const predictedSpeed = (row) =>
    (row.simulated !== true && numberOf(row.iteration_seconds_predicted, 0) > 0 &&
             numberOf(row.iteration_seconds_median, 0) > 0 ?
         speedOf(row) * row.iteration_seconds_median / row.iteration_seconds_predicted :
         null);

function groupBy(list, keyOf) {
    const groups = new Map();
    for (const one of list) {
        const key = keyOf(one);
        if (!groups.has(key)) groups.set(key, []);
        groups.get(key).push(one);
    }
    return groups;
}

const rateTick = (value, top) => (top >= 1e5 ? value / 1000 + 'k' : value.toLocaleString('en'));

const BARS_UP_TO = 2;  // values of x; of more, lines show how the speed changes
const WIDEST_BAR = 30;

// Places bars side by side at their value of x: sets each point's x in pixels, and returns their width.
function placeBars(shown, middle, room) {
    const groups = groupBy(shown, (p) => p.x), side = most([...groups.values()].map((own) => own.length), 1);
    const width = Math.min(WIDEST_BAR, room / side);
    for (const [x, own] of groups)
        own.sort((p, q) => p.series - q.series || p.predicted - q.predicted).forEach((p, i) => {
            p.middle = middle(x) + (i - (own.length - 1) / 2) * width;
        });
    return width;
}

// A chart with a curve for each series and device, and another for what is predicted of it.
// points: [{series, name, x, y, row, predicted, lossy, title, lines}]; title and lines: of the tip. stepped: x has
// ticks at the points only.
function curveChart({points, xText, xLabel, label, stepped}) {
    const figure = element('div', {class: 'chart'});
    const hidden = new Set();
    const values = [...new Set(points.map((p) => p.x))].sort((a, b) => a - b), bars = values.length <= BARS_UP_TO;
    let at = -1, dots = [];

    function scaleOf(width, height) {
        const margins = {left: 58, right: 16, top: 26, bottom: 44};
        const low = values[0], high = values[values.length - 1], plot = width - margins.left - margins.right;
        const log = high > 6 * low;
        const across = (x) => (log ? Math.log2(x) : x),
              pad = (across(high) - across(low)) * 0.06 || Math.abs(across(low)) * 0.2 || 1;
        const a = across(low) - pad, b = across(high) + pad;
        const {high: top, ticks: yTicks} = axisOf(0, most(points.map((p) => p.y)), 5, false);
        const ticks = bars || stepped ? values :
            log ? ticksOf(Math.ceil(across(low)), across(high), 7, true).filter(Number.isInteger).map((t) => 2 ** t) :
                  ticksOf(a, b, 6, true);
        return {
            margins,
            top,
            ticks,
            yTicks,
            room: plot / values.length * 0.9,
            x: bars ? (value) => margins.left + (values.indexOf(value) + 0.5) / values.length * plot :
                      (value) => margins.left + (across(value) - a) / (b - a) * plot,
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
        for (const y of s.yTicks) {
            svg.append(element(
                'svg:line', {x1: s.margins.left, x2: width - s.margins.right, y1: s.y(y), y2: s.y(y), class: 'grid'}));
            text(s.margins.left - 8, s.y(y) + 4, 'end', rateTick(+y.toPrecision(6), s.top));
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
        // Predicted lines are drawn last, since solid ones would hide them.
        const shown =
            points.filter((p) => !hidden.has(p.series)).sort((p, q) => p.predicted - q.predicted || p.x - q.x);
        const wide = bars ? placeBars(shown, s.x, s.room) : 0, radius = bars ? clamp(wide * 0.45, 2, 4.5) : 4.5;
        const xOf = (p) => (bars ? p.middle : s.x(p.x));
        for (const line of groupBy(shown, (p) => [p.series, p.predicted, textOf(p.row.device)].join()).values()) {
            const [{series, predicted, lossy}] = line;
            const kind = ' series' + series % SERIES;
            if (!bars)
                svg.append(element('svg:path', {
                    class: 'line' + kind + (series >= SERIES ? ' thin' : '') + (predicted ? ' dashed' : ''),
                    d: line.map((p, i) => `${i ? 'L' : 'M'}${s.x(p.x).toFixed(1)} ${s.y(p.y).toFixed(1)}`).join('')
                }));
            for (const p of line) {
                const mark = markOf(series, {predicted, lossy}, radius);
                mark.setAttribute('transform', `translate(${xOf(p).toFixed(1)} ${s.y(p.y).toFixed(1)})`);
                if (bars)
                    svg.append(element('svg:rect', {
                        class: 'speed' + kind + (predicted ? ' predicted' : ''),
                        x: (p.middle - wide * 0.4).toFixed(1),
                        y: s.y(p.y).toFixed(1),
                        width: (wide * 0.8).toFixed(1),
                        height: (s.y(0) - s.y(p.y)).toFixed(1)
                    }));
                svg.append(mark);
                dots.push({p, mark, x: xOf(p), y: s.y(p.y)});
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
            // All of a bar is near it.
            const far = (dot) => Math.hypot(dot.x - x, bars ? Math.max(0, dot.y - y) : dot.y - y);
            const near = dots.map((dot) => [far(dot), dot]).sort((a, b) => a[0] - b[0])[0];
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

    const policies = groupBy(points, (p) => p.series);
    const legend = element(
        'div', {class: 'legend', role: 'group', 'aria-label': 'Policies shown'}, [...policies].map(([series, own]) => {
            const how = {predicted: own.every((p) => p.predicted), lossy: own.some((p) => p.lossy)};
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
                markIcon(series, how), own[0].name);
            return button;
        }));
    const kinds = points.flatMap((p) => [p.predicted ? 'predicted' : 'measured', p.lossy ? 'lossy' : '']);
    new ResizeObserver(draw).observe(figure);
    return [figure, legend, markKey(kinds, bars)];
}

// The points of a row: what was measured, and what is predicted.
function rowPoints(row, x) {
    const policy = textOf(row.policy), beside = predictedSpeed(row), lossy = row.lossy === true;
    const point = (y, seconds, predicted) => ({
        series: seriesOf(policy),
        name: policy + (lossy ? ' (lossy)' : ''),
        x,
        y,
        row,
        predicted,
        lossy,
        title: policy + (lossy ? ' (lossy)' : ''),
        lines: [
            predicted && row.simulated !== true ? 'predicted by simulation' : settingOf(row),
            [speedUnit(row), rateText(y)], ['step', timeText(1e6 * seconds)], ['batch', textOf(row.batch)],
            ['budget', sizeText(row.budget_bytes)],
            predicted ? ['planned', sizeText(row.predicted_peak_bytes)] : ['touched', sizeText(row.peak_bytes)],
            numberOf(row.pinned_bytes, 0) > 0 && ['pinned host memory', sizeText(row.pinned_bytes)]
        ]
    });
    const own = row.simulated === true ? row.iteration_seconds_predicted : row.iteration_seconds_median;
    return [point(speedOf(row), numberOf(own), row.simulated === true)].concat(
        beside === null ? [] : point(beside, row.iteration_seconds_predicted, true));
}

// Names the policies that ran in no budget, and those that ran in some, with the smallest budget that each needs.
function absentText(rows) {
    const named = (policies) =>
        policies
            .map(([policy, all]) => {
                const least =
                    Math.min(...all.map((row) => numberOf(row.minimum_bytes, 0)).filter((bytes) => bytes > 0));
                return isNumber(least) ? `${policy} (needs ${sizeText(least)})` : policy;
            })
            .join(', ');
    const absent = [...groupBy(rows, (row) => textOf(row.policy))].filter(([, all]) => !all.every(ranRow));
    const never = absent.filter(([, all]) => !all.some(ranRow)),
          sometimes = absent.filter(([, all]) => all.some(ranRow));
    return [
        never.length > 0 && `Ran in none of the budgets: ${named(never)}.`,
        sometimes.length > 0 && `Ran in some of the budgets only: ${named(sometimes)}.`
    ].filter(Boolean)
               .join(' ') ||
        null;
}

function card(title, ...children) {
    return element('figure', {class: 'card'}, element('figcaption', null, title), children);
}

const settingOf = (row) => {
    const device = textOf(row.device), simulated = row.simulated === true;
    return device ? (simulated ? 'simulated for ' : 'measured on ') + device : simulated ? 'simulated' : '';
};

// What the rows have in common, such as "resnet20, batch 16, measured on host".
const settingsOf = (rows) => [...new Set(rows.map(settingOf).filter(Boolean))].join(', ');
const titleOf = (name, rows) => [name, settingsOf(rows)].filter(Boolean).join(', ');

function budgetCards(rows) {
    return [...groupBy(rows, (row) => `${textOf(row.net)}, batch ${textOf(row.batch)}`)]
        .map(([name, all]) => {
            const points = all.filter((row) => ranRow(row) && numberOf(row.budget_bytes, 0) > 0)
                               .flatMap((row) => rowPoints(row, row.budget_bytes));
            const batches = new Set(rows.filter((row) => row.net === all[0].net).map((row) => row.batch)).size;
            const budgets = new Set(points.map((p) => p.x)).size;
            if (points.length < 2 || (budgets === 1 && batches > 1))
                return null;  // one point is no curve; of one budget batchCards draws the rows
            const absent = absentText(all);
            return card(
                `${titleOf(name, all)}: throughput over the budget`, curveChart({
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
            const key = (row) => [textOf(row.policy), row.batch, settingOf(row)].join(' ');
            const fastest = [...groupBy(all, key).values()].map(
                (same) => same.reduce((a, b) => (b.images_per_second > a.images_per_second ? b : a)));
            return card(`${titleOf(name, all)}: throughput over the batch`, curveChart({
                            points: fastest.flatMap((row) => rowPoints(row, row.batch)),
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
        'Images or tokens a second of each policy, by the median step. Point at a mark for its figures; a click in the ' +
            'legend hides a policy.')
        .append(element('div', {class: 'cards' + (cards.length === 1 ? ' one' : '')}, cards));
}
