/* SPDX-License-Identifier: MIT */
// Timelines of streams, from traces: what ran when, what it waited for, and where a map went. Hatched if predicted.

const SLICES = [
    ['forward', 'forward'],
    ['backward', 'backward'],
    ['update', 'update'],
    ['recompute', 'recompute'],
    ['encode', 'encode'],
    ['decode', 'decode'],
    ['offload', 'offload'],
    ['prefetch', 'prefetch'],
    ['measure', 'measure'],
    ['wait', 'wait'],
    ['other', 'other'],
];
const LANE = 24;  // pixels of a lane: one depth of a track

// The share of the time from begin to end in which a track is busy. Waits do not count as busy.
function busyShare(track, begin, end) {
    let busy = 0, until = begin;
    for (const s of track.slices) {
        if (s.wait || s.end <= until || s.begin >= end) continue;
        busy += Math.min(s.end, end) - Math.max(s.begin, until);
        until = Math.min(s.end, end);
    }
    return end > begin ? busy / (end - begin) : 0;
}

class TimelinePanel {
    constructor(run, title) {
        this.run = run;
        this.lanes = [];
        for (const track of run.tracks)
            for (let depth = 0; depth <= most(track.slices.map((s) => s.depth)); depth++)
                this.lanes.push(
                    {track, depth, slices: track.slices.filter((s) => s.depth === depth && s.kind !== 'iteration')});
        this.view = new View({
            label:
                `${title}: timeline of the streams; left and right go from slice to slice, up and down between streams`,
            height: 34 + this.lanes.length * (LANE + 6),
            margins: {left: 112, right: 12, top: 6, bottom: 26},
            span: [run.begin, run.end],
            least: 1,
            tipBelow: true,
            draw: (context) => this.draw(context),
            find: (x, y) => this.find(x, y),
            step: (cursor, dx, dy) => this.step(cursor, dx, dy)
        });
        this.leastShown = 0;
        this.origin = run.begin;
        const tools = element('div', {class: 'tools'}, this.iterationChoice(), this.view.zoomButtons());
        this.box = element(
            'figure', {class: 'card timeline'},
            element('div', {class: 'head'}, element('figcaption', null, title), tools),
            this.facts = element('p', {class: 'facts'}), this.view.box);
    }

    // Chooses the last iteration at first, because earlier ones warm up.
    iterationChoice() {
        const {iterations} = this.run;
        if (iterations.length < 2) return null;
        this.chosen = iterations[iterations.length - 1];
        const select = element(
            'select', {
                'aria-label': 'Iteration',
                onchange: () => {
                    this.chosen = iterations.find((i) => String(i.number) === select.value);
                    this.frameChosen();
                }
            },
            element('option', {value: 'all'}, 'all iterations'),
            iterations.map((i) => element('option', {value: i.number}, 'iteration ' + i.number)));
        select.value = String(this.chosen.number);
        return select;
    }

    // Shows the chosen iteration, or all. least: the fewest microseconds to show, so that timelines have one scale.
    frameChosen(least = this.leastShown) {
        const {begin, end} = this.chosen || this.run,
                      width = Math.max(end - begin, this.chosen || this.run.iterations.length < 2 ? least : 0);
        this.leastShown = least;
        this.origin = begin;
        this.view.span = [this.run.begin, Math.max(this.run.end, begin + width * 1.01)];
        this.view.show(begin, begin + width * 1.01);
    }

    get chosenTime() {
        const {begin, end} = this.chosen || this.run;
        return end - begin;
    }

    laneTop(lane) { return this.view.margins.top + lane * (LANE + 6); }

    // The visible part of the chosen iteration, [begin, end].
    get seen() {
        const {begin, end} = this.chosen || this.run;
        return [Math.max(this.view.begin, begin), Math.min(this.view.end, end)];
    }

    // ------------------------------------------------------------ drawing

    draw(context) {
        const {view} = this, right = view.width - view.margins.right;
        context.clearRect(0, 0, view.width, view.height);
        this.drawTime(context);
        this.lanes.forEach((lane, i) => {
            const y = this.laneTop(i);
            context.fillStyle = colour('lane');
            context.fillRect(view.margins.left, y, view.plotWidth, LANE);
            if (lane.depth > 0) return;
            context.textAlign = 'left';
            context.fillStyle = colour('ink');
            context.fillText(fitText(context, lane.track.name, 62), 2, y + LANE / 2);
            context.textAlign = 'right';
            context.fillStyle = colour('muted');
            context.fillText(percentText(busyShare(lane.track, ...this.seen)), view.margins.left - 8, y + LANE / 2);
        });
        context.save();
        context.beginPath();
        context.rect(view.margins.left, 0, right - view.margins.left, view.height);
        context.clip();
        this.lanes.forEach((lane, i) => {
            this.drawLane(context, lane, this.laneTop(i));
            if (this.run.predicted) drawHatch(context, [view.margins.left, this.laneTop(i), view.plotWidth, LANE]);
            this.drawNames(context, lane, this.laneTop(i));
        });
        this.drawIterations(context);
        context.restore();
        this.tellWindow();
    }

    tellWindow() {
        const [begin, end] = this.seen;
        const parts = [
            ['shown', timeText(Math.max(0, end - begin))],
            ['slices', this.run.tracks.reduce((n, t) => n + t.slices.length, 0).toLocaleString('en')]
        ];
        if (this.run.iterations.length > 0) parts.push(['iterations', this.run.iterations.length]);
        this.facts.replaceChildren(
            ...parts.map(([label, value]) => element('span', null, label + ' ', element('b', null, value))),
            element('span', null, 'beside each stream: its busy share of what is shown'));
    }

    drawTime(context) {
        const {view} = this, ground = view.height - view.margins.bottom;
        const count = clamp(Math.floor(view.plotWidth / 110), 3, 10);
        context.textAlign = 'center';
        for (const t of ticksOf(view.begin - this.origin, view.end - this.origin, count, false)) {
            const x = Math.round(view.xOf(t + this.origin)) + 0.5;
            context.strokeStyle = colour('grid');
            context.beginPath();
            context.moveTo(x, view.margins.top);
            context.lineTo(x, ground + 4);
            context.stroke();
            context.fillStyle = colour('muted');
            const text = t === 0 ? '0' : timeText(t), half = context.measureText(text).width / 2;
            if (x - half > view.margins.left - 20 && x + half < view.width) context.fillText(text, x, ground + 15);
        }
    }

    // Slices too narrow to be seen add up to bars: a bar's height is the share of its pixel's time. Bars of waits hang
    // from the top.
    drawLane(context, lane, y) {
        const {view} = this, narrow = new Map();
        for (const s of lane.slices) {
            if (s.end < view.begin) continue;
            if (s.begin > view.end) break;
            const x = view.xOf(s.begin), w = view.xOf(s.end) - x;
            if (w >= 2)
                this.drawSlice(context, s, x, y, w);
            else
                this.addNarrow(narrow, s.kind, x, x + Math.max(w, 0.05));
        }
        const ground = new Map();
        for (const [kind, columns] of narrow) {
            context.fillStyle = colour('slice-' + kind);
            for (const [x, share] of columns) {
                const below = kind === 'wait' ? 0 : ground.get(x) || 0, whole = kind === 'wait' ? 6 : LANE;
                const h = Math.min(Math.max(1, share * whole), whole - below);
                context.fillRect(x, kind === 'wait' ? y : y + LANE - below - h, 1, h);
                if (kind !== 'wait') ground.set(x, below + h);
            }
        }
    }

    addNarrow(narrow, kind, begin, end) {
        if (!narrow.has(kind)) narrow.set(kind, new Map());
        const columns = narrow.get(kind);
        for (let x = Math.floor(begin); x < end; x++)
            columns.set(x, (columns.get(x) || 0) + Math.min(end, x + 1) - Math.max(begin, x));
    }

    drawSlice(context, s, x, y, w) {
        context.fillStyle = colour('slice-' + s.kind);
        if (s.wait) {
            context.fillRect(x, y + LANE / 2 - 3, w, 6);
            return;
        }
        context.fillRect(x, y, w > 3 ? w - 0.6 : w, LANE);
    }

    // Writes the names of slices that have room. Nothing is hatched behind a name.
    drawNames(context, lane, y) {
        const {view} = this;
        context.textAlign = 'left';
        for (const s of lane.slices) {
            const x = view.xOf(s.begin), end = Math.min(view.xOf(s.end), view.width - view.margins.right);
            if (s.wait || s.end < view.begin || s.begin > view.end || end - x <= 30) continue;
            const from = Math.max(x, view.margins.left) + 4, name = fitText(context, s.name, end - from - 4);
            if (!name) continue;
            context.fillStyle = colour('slice-' + s.kind);
            if (this.run.predicted)
                context.fillRect(from - 2, y + LANE / 2 - 7, context.measureText(name).width + 4, 14);
            context.fillStyle = colour('on-layer');
            context.fillText(name, from, y + LANE / 2 + 0.5);
        }
    }

    drawIterations(context) {
        const {view} = this;
        context.strokeStyle = colour('muted');
        context.setLineDash([3, 3]);
        for (const one of this.run.iterations) {
            const x = Math.round(view.xOf(one.begin)) + 0.5;
            context.beginPath();
            context.moveTo(x, 0);
            context.lineTo(x, view.height - view.margins.bottom);
            context.stroke();
        }
        context.setLineDash([]);
    }

    // ------------------------------------------------------------ what is there

    find(x, y) {
        const i = Math.floor((y - this.view.margins.top) / (LANE + 6)), lane = this.lanes[i];
        if (!lane) return null;
        const t = this.view.valueAt(x), near = 3 / this.view.plotWidth * (this.view.end - this.view.begin);
        const away = (s) => Math.max(s.begin - t, t - s.end, 0);
        const slice = lane.slices.filter((s) => away(s) <= near).sort((a, b) => away(a) - away(b))[0];
        return slice ? this.told(slice) : null;
    }

    told(s) {
        const {args} = s, at = timeText(s.begin - this.origin);
        return {
            title: s.name,
            lines: [
                ['takes', timeText(s.end - s.begin)], ['from', at], ['stream', s.track.name],
                args.layer && ['layer', textOf(args.layer)], args.tensor && ['tensor', textOf(args.tensor)],
                args.action === 'step' ?
                    ['phase', textOf(args.phase)] :
                    ['action', textOf(args.action, s.kind) + (args.phase ? ', ' + textOf(args.phase) : '')],
                isNumber(args.bytes) && ['bytes', sizeText(args.bytes)],
                isNumber(args.stored_bytes) && args.stored_bytes !== args.bytes &&
                    ['stored', sizeText(args.stored_bytes)],
                isNumber(args.iteration) && ['iteration', textOf(args.iteration)],
                s.chains && 'the lines show where the map went: out, back, and to its reader'
            ],
            mark: (context) => this.mark(context, s),
        };
    }

    frame(s) {
        const x = this.view.xOf(s.begin),
              lane = this.lanes.findIndex((one) => one.track === s.track && one.depth === s.depth);
        return [x, this.laneTop(lane), Math.max(2, this.view.xOf(s.end) - x), LANE];
    }

    mark(context, s) {
        const {view} = this;
        context.beginPath();
        context.rect(view.margins.left - 1, 0, view.plotWidth + 2, view.height);
        context.clip();
        context.strokeStyle = colour('ink');
        context.lineWidth = 2;
        context.strokeRect(...this.frame(s));
        for (const chain of s.chains || []) {
            chain.forEach((one) => context.strokeRect(...this.frame(one)));
            for (let i = 1; i < chain.length; i++) this.markLine(context, chain[i - 1], chain[i]);
        }
    }

    markLine(context, from, to) {
        const [x1, y1, w1] = this.frame(from), [x2, y2] = this.frame(to), a = x1 + w1, bend = Math.abs(x2 - a) / 2;
        context.beginPath();
        context.moveTo(a, y1 + LANE / 2);
        context.bezierCurveTo(a + bend, y1 + LANE / 2, x2 - bend, y2 + LANE / 2, x2, y2 + LANE / 2);
        context.stroke();
    }

    step(cursor, dx, dy) {
        const {view} = this;
        const lane = clamp((cursor ? cursor.lane : 0) + dy, 0, this.lanes.length - 1), {slices} = this.lanes[lane];
        const t = cursor ? cursor.x : view.begin, middle = (s) => (s.begin + s.end) / 2;
        let i = slices.findIndex((s) => middle(s) > t + 1e-6);
        if (dx < 0) {
            i = (i < 0 ? slices.length : i) - 1;
            while (i > 0 && middle(slices[i]) >= t - 1e-6) i--;
        } else if (dy !== 0 && i > 0 && t - middle(slices[i - 1]) < middle(slices[i]) - t)
            i--;
        const s = slices[clamp(i < 0 ? slices.length - 1 : i, 0, slices.length - 1)];
        return {lane, x: s ? middle(s) : t, y: this.laneTop(lane) + LANE / 2};
    }
}

function addTimelines(all) {
    const runs = all.runs.filter((run) => run.tracks.length > 0);
    if (runs.length === 0) return;
    const made = section(
        'timeline', 'Timeline of the streams',
        (runs.every((run) => run.predicted)    ? 'What each stream would do, as predicted: nothing ran.' :
             runs.some((run) => run.predicted) ? 'What each stream did, or would do where the title says predicted.' :
                                                 'What each stream did.') +
            ' Point at an operation to see where its map went. Ctrl or Shift with the wheel ' +
            'zooms, as do + and −; drag to move. Where slices are too narrow to be seen, bars are as high as the ' +
            'stream is busy.',
        'Timeline');
    const used = new Set(runs.flatMap((run) => run.tracks.flatMap((track) => track.slices.map((s) => s.kind))));
    const bar = element(
        'div', {class: 'sectionbar'},
        element(
            'div', {class: 'legend'},
            SLICES.filter(([kind]) => used.has(kind))
                .map(([kind, name]) => element('span', null, element('i', {class: 'swatch slice-' + kind}), name)),
            runs.some((run) => run.predicted) && hatchedSwatch('hatched: predicted, nothing ran')));
    made.append(bar);
    if (all.dropped > 0)
        made.append(element(
            'p', {class: 'note'},
            `${
                all.dropped.toLocaleString(
                    'en')} events were dropped while the trace was written: its buffer was full.`));
    const panels = runs.map((run) => new TimelinePanel(run, run.title));
    const scales = new Map();
    for (const panel of panels) scaleOf(scales, panel.run.group, panel.chosenTime);
    const frame = (common) => {
        for (const panel of panels) panel.frameChosen(common ? scales.get(panel.run.group).most : 0);
    };
    bar.append(...[scaleChoice(scales.size, panels.length, frame)].filter(Boolean));
    made.append(...panels.map((panel) => panel.box));
    frame(scales.size < panels.length);
}
