/* SPDX-License-Identifier: MIT */
// Memory over the iteration: stacked by LAYERS, or every segment at its address. Hatched if it is predicted.

const MEMORY_HEIGHT = 250;

// The action of a segment → words for what the first node that uses it does.
const ACTIONS = {
    computed: 'computed by',
    recomputed: 'computed again by',
    encoded: 'encoded, by',
    decoded: 'decoded, by',
    fetched: 'brought back, by',
    offloaded: 'brought to the host, by',
    workspace: 'workspace of',
    pool: 'for codes, from'
};

// The lines of a segment's tip: what it is and why it is there.
function segmentLines(picture, s) {
    const decided = picture.decisions.get(s.name), at = (node) => picture.names[node] || '–';
    return [
        ['size', sizeText(s.bytes)],
        s.layer && ['layer', s.layer],
        ['kind', s.kind + (s.codec ? `, code of ${s.codec}` : '')],
        s.lasting ? ['action', 'stays on the device throughout'] :
                    ['action', `${ACTIONS[s.action] || s.action + ', from'} ${at(s.first)}`],
        !s.lasting && s.user !== s.first && ['last used by', at(s.user)],
        decided && decided.actions.length > 0 &&
            ['the map', decided.actions.join(' + ') + (decided.codec ? ` (${decided.codec})` : '')],
        [
            'address',
            s.dynamic ? 'chosen at run time' :
                        `${sizeText(s.offset)} to ${sizeText(s.offset + s.bytes)}${s.pinned ? ' of pinned memory' : ''}`
        ],
        !s.lasting && ['alive', `${s.last - s.first + 1} of ${picture.n} steps and operations`],
    ];
}

const aliveAt = (picture, node, pinned) =>
    picture.segments.filter((s) => s.pinned === pinned && s.first <= node && node <= s.last);

class MemoryPanel {
    // scale: {common: whether pictures have one scale, most: bytes that the largest of them shows}
    constructor({picture, title, budget, predicted}, facts, scale) {
        Object.assign(this, {picture, budget, predicted, scale, mode: 'kinds', layers: picture.used});
        this.view = new View({
            label: `${title}: device memory over the iteration; arrow keys go through steps and segments`,
            height: MEMORY_HEIGHT,
            margins: {left: 66, right: 12, top: 10, bottom: 36},
            span: [0, picture.n],
            least: Math.min(4, picture.n),
            draw: (context) => this.draw(context),
            find: (x, y) => this.find(x, y),
            step: (cursor, dx, dy) => this.step(cursor, dx, dy)
        });
        const modes = [['kinds', 'by kind']];
        if (picture.segments.length > 0) modes.push(['addresses', 'by address']);
        if (picture.segments.some((s) => s.pinned)) modes.push(['pinned', 'host']);
        const tools =
            element('div', {class: 'tools'}, modes.length > 1 && choice('What is drawn', modes, 'kinds', (mode) => {
                                                 this.mode = mode;
                                                 this.view.leave();
                                                 this.view.redraw();
                                             }), this.view.zoomButtons());
        this.box = element(
            'figure', {class: 'card memory'},
            element('div', {class: 'head'}, element('figcaption', null, title), tools),
            element('p', {class: 'facts'}, facts), this.view.box);
    }

    // The bytes at the upper edge of the plot.
    get top() {
        const {picture} = this;
        if (this.mode === 'pinned') return picture.pinned * 1.06 || 1;
        if (this.mode === 'addresses') return Math.max(picture.extent, this.budget || 0) * 1.06 || 1;
        const own = Math.max(picture.extent, picture.most, this.budget || 0);
        return (this.scale.common ? Math.max(this.scale.most, own) : own) * 1.06 || 1;
    }

    yOf(bytes) { return this.view.margins.top + this.view.plotHeight * (1 - bytes / this.top); }

    // ------------------------------------------------------------ drawing

    draw(context) {
        context.clearRect(0, 0, this.view.width, this.view.height);
        if (this.mode === 'kinds') drawSizeAxis(context, this.view, this.top);
        context.save();
        context.beginPath();
        context.rect(this.view.margins.left, 0, this.view.plotWidth, this.view.height);
        context.clip();
        if (this.mode === 'kinds')
            this.drawKinds(context);
        else
            this.drawSegments(context);
        context.restore();
        if (this.mode !== 'kinds') drawSizeAxis(context, this.view, this.top);
        this.drawLevels(context);
        this.drawPhases(context);
    }

    // The column that pixel x shows: of the columns in that pixel the one with most bytes, so that no peak is lost.
    columnAt(x) {
        const {picture, view} = this, last = picture.n - 1;
        const begin = clamp(Math.floor(view.valueAt(x)), 0, last),
              end = clamp(Math.ceil(view.valueAt(x + 1)) - 1, begin, last);
        let best = begin;
        for (let i = begin; i <= end; i++)
            if (picture.total[i] > picture.total[best]) best = i;
        return best;
    }

    // Makes the path around the bytes of some kinds.
    pathBelow(context, columns, kinds) {
        const {picture, view, top} = this, left = view.margins.left;
        context.beginPath();
        context.moveTo(left, this.yOf(0));
        columns.forEach((column, i) => {
            const bytes = kinds.reduce((sum, l) => sum + picture.stacks[l][column], 0);
            const y = view.margins.top + view.plotHeight * (1 - bytes / top);
            context.lineTo(left + i, y);
            context.lineTo(left + i + 1, y);
        });
        context.lineTo(view.width - view.margins.right, this.yOf(0));
    }

    // Draws each kind as an area from the ground up, the highest first, so that no seam shows between them.
    drawKinds(context) {
        const {view} = this, columns = [];
        for (let x = view.margins.left; x < view.width - view.margins.right; x++) columns.push(this.columnAt(x));
        for (let k = this.layers.length - 1; k >= 0; k--) {
            this.pathBelow(context, columns, this.layers.slice(0, k + 1));
            context.fillStyle = colour('layer-' + LAYERS[this.layers[k]].id);
            context.fill();
        }
        if (!this.predicted) return;
        this.pathBelow(context, columns, this.layers);
        drawHatch(context, null);
    }

    rectOf(s) {
        const {view} = this, x = view.xOf(s.first), y = this.yOf(s.offset + s.bytes);
        return [x, y, Math.max(view.xOf(s.last + 1) - x, 0.5), Math.max(this.yOf(s.offset) - y, 0.25)];
    }

    drawSegments(context) {
        const pinned = this.mode === 'pinned', {view} = this;
        context.strokeStyle = colour('card');
        for (const s of this.picture.segments) {
            if (s.pinned !== pinned || s.last + 1 < view.begin || s.first > view.end) continue;
            const [x, y, w, h] = this.rectOf(s);
            context.fillStyle = colour('layer-' + LAYERS[s.depth].id);
            context.fillRect(x, y, w, h);
            if (this.predicted) drawHatch(context, [x, y, w, h]);
            if (w > 4 && h > 4) context.strokeRect(x, y, w, h);
            if (h < 13 || w < 40) continue;
            const from = Math.max(x, view.margins.left) + 4;
            const name = fitText(context, s.name, Math.min(x + w, view.width - view.margins.right) - from - 4);
            if (name) this.drawName(context, name, from, y + h / 2, 'layer-' + LAYERS[s.depth].id);
        }
    }

    // Writes a name on an area, without hatching behind it.
    drawName(context, name, x, y, ground) {
        if (this.predicted) {
            context.fillStyle = colour(ground);
            context.fillRect(x - 2, y - 7, context.measureText(name).width + 4, 13);
        }
        context.textAlign = 'left';
        context.fillStyle = colour('on-layer');
        context.fillText(name, x, y);
    }

    // Lines across the picture: the budget, and what the plan takes where that is more than what is alive at the peak.
    drawLevels(context) {
        if (this.mode === 'pinned') return;
        const {most: alive, extent} = this.picture, {budget} = this;
        if (this.mode === 'kinds' && extent > 1.01 * alive && Math.abs(extent - budget) > 0.02 * this.top)
            this.drawLevel(context, extent, 'arena ', 'muted', [2, 3]);
        if (budget && budget <= this.top) this.drawLevel(context, budget, 'budget ', 'alert', [7, 4]);
    }

    // The label stands at the left, where memory is low.
    drawLevel(context, bytes, name, ink, dashes) {
        const {view} = this, y = Math.round(this.yOf(bytes)) + 0.5;
        context.strokeStyle = colour(ink);
        context.setLineDash(dashes);
        context.beginPath();
        context.moveTo(view.margins.left, y);
        context.lineTo(view.width - view.margins.right, y);
        context.stroke();
        context.setLineDash([]);
        const text = name + sizeText(bytes), above = y > view.margins.top + 18 ? -16 : 2;
        context.fillStyle = colour('card');
        context.fillRect(view.margins.left + 4, y + above, context.measureText(text).width + 8, 14);
        context.fillStyle = colour(ink);
        context.textAlign = 'left';
        context.fillText(text, view.margins.left + 8, y + above + 7);
    }

    drawPhases(context) {
        const {view} = this, ground = view.height - view.margins.bottom;
        for (const phase of this.picture.phases) {
            const begin = Math.max(view.xOf(phase.begin), view.margins.left),
                  end = Math.min(view.xOf(phase.end), view.width - view.margins.right);
            if (end <= begin) continue;
            context.fillStyle = colour('phase-' + phase.name);
            context.fillRect(begin, ground + 4, Math.max(1, end - begin - 1), 4);
            context.fillStyle = colour('muted');
            context.textAlign = 'center';
            if (end - begin > context.measureText(phase.name).width + 6)
                context.fillText(phase.name, (begin + end) / 2, ground + 20);
        }
    }

    // ------------------------------------------------------------ what is there

    find(x, y) {
        const node = clamp(Math.floor(this.view.valueAt(x)), 0, this.picture.n - 1);
        return this.mode === 'kinds' ? this.findKind(this.columnAt(x), y) : this.findSegment(node, y);
    }

    markColumn(context, node) {
        const x = this.view.xOf(node), width = Math.max(1.5, this.view.xOf(node + 1) - x);
        context.fillStyle = colour('cursor');
        context.fillRect(x, this.view.margins.top, width, this.view.plotHeight);
    }

    // The tip of the kind under the pointer, with its largest segments; above all areas: the tip of all kinds.
    findKind(node, y) {
        const {picture} = this;
        let sum = 0, under = -1;
        for (const l of this.layers) {
            const below = sum;
            sum += picture.stacks[l][node];
            if (y <= this.yOf(below) && y > this.yOf(sum)) under = l;
        }
        const alive = aliveAt(picture, node, false)
                          .filter((s) => (under < 0 ? !s.lasting : s.depth === under))
                          .sort((a, b) => b.bytes - a.bytes);
        const named = alive.slice(0, 6).map(
            (s) => `${sizeText(s.bytes)}  ${s.name} · ${s.layer} · ${s.action}${s.codec ? ' by ' + s.codec : ''}`);
        if (alive.length > 6) named.push(`and ${alive.length - 6} others, none larger`);
        const kinds = under < 0 ? this.layers.filter((l) => picture.stacks[l][node] > 0).reverse() : [under];
        return {
            title: picture.names[node],
            lines: [
                ['all', sizeText(picture.total[node])],
                ...kinds.map((l) => [LAYERS[l].name, sizeText(picture.stacks[l][node])]), ...named
            ],
            mark: (context) => this.markColumn(context, node),
        };
    }

    findSegment(node, y) {
        const {picture} = this, pinned = this.mode === 'pinned';
        const bytes = (1 - (y - this.view.margins.top) / this.view.plotHeight) * this.top;
        const s = aliveAt(picture, node, pinned).find((one) => one.offset <= bytes && bytes < one.offset + one.bytes);
        if (!s)
            return {
                title: picture.names[node],
                lines: ['nothing lies here'],
                mark: (context) => this.markColumn(context, node)
            };
        return {
            title: s.name,
            lines: segmentLines(picture, s),
            mark: (context) => {
                const [x, top, w, h] = this.rectOf(s);
                context.strokeStyle = colour('ink');
                context.lineWidth = 2;
                context.strokeRect(x, top, Math.max(w, 2), Math.max(h, 2));
            },
        };
    }

    // Arrow keys: left and right move along the nodes, up and down through the segments or kinds at a node.
    step(cursor, dx, dy) {
        const {picture, view} = this;
        const node =
            cursor ? clamp(cursor.node + dx, 0, picture.n - 1) : clamp(Math.floor(view.begin), 0, picture.n - 1);
        const middles = this.mode === 'kinds' ? this.middlesOfKinds(node) :
                                                aliveAt(picture, node, this.mode === 'pinned')
                                                    .map((s) => this.yOf(s.offset + s.bytes / 2))
                                                    .sort((a, b) => a - b);
        const y = cursor ? cursor.y : view.margins.top + 1;
        const next = dy < 0 ? middles.filter((one) => one < y - 0.5).pop() :
            dy > 0          ? middles.find((one) => one > y + 0.5) :
                              y;
        return {node, x: node + 0.5, y: next === undefined ? y : next};
    }

    middlesOfKinds(node) {
        let sum = 0;
        return this.layers
            .map((l) => {
                sum += this.picture.stacks[l][node];
                return this.yOf(sum - this.picture.stacks[l][node] / 2);
            })
            .reverse();
    }
}

// ---------------------------------------------------------------- the section

function memoryFacts(picture, budget) {
    return [
        ['peak', `${sizeText(picture.most)} at ${picture.names[picture.peak]}`],
        picture.extent > 0 && ['arena', sizeText(picture.extent)], budget > 0 && ['budget', sizeText(budget)],
        picture.pinned > 0 && ['pinned host memory', sizeText(picture.pinned)],
        picture.segments.length > 0 && ['segments', picture.segments.length.toLocaleString('en')]
    ].filter(Boolean)
        .map(([label, value]) => element('span', null, label + ' ', element('b', null, value)));
}

const hatchedSwatch = (text) => element('span', null, element('i', {class: 'swatch hatched'}), text);

function memoryLegend(shown) {
    const used = LAYERS.filter((_, l) => shown.some((one) => one.picture.used.includes(l)));
    return element(
        'div', {class: 'legend'},
        used.map((layer) => element('span', null, element('i', {class: 'swatch layer-' + layer.id}), layer.name)),
        shown.some((one) => one.predicted) && hatchedSwatch('hatched: predicted, nothing ran'));
}

// {common, most} for each network and batch, whose pictures can be compared. byGroup: filled here.
function scaleOf(byGroup, group, most) {
    if (!byGroup.has(group)) byGroup.set(group, {common: true, most: 0});
    const scale = byGroup.get(group);
    scale.most = Math.max(scale.most, most);
    return scale;
}

// A box to tick; null where there is nothing to compare.
function scaleChoice(groups, pictures, onChange) {
    if (pictures === groups) return null;
    return element(
        'label', null,
        element('input', {type: 'checkbox', checked: true, onchange: (event) => onChange(event.target.checked)}),
        groups > 1 ? ' one scale for each network and batch' : ' one scale for all');
}

function addMemory(all) {
    const shown = [
        ...all.plans.filter((plan) => plan.picture)
            .map(({raw, picture}) => ({
                     picture,
                     budget: numberOf(raw.budget_bytes, 0),
                     predicted: true,
                     lossy: raw.lossy === true,
                     group: `${textOf(raw.net)}, batch ${textOf(raw.batch)}`,
                     title: `${textOf(raw.net)}, batch ${textOf(raw.batch)}, ${textOf(raw.policy)}: predicted` +
                         (textOf(raw.machine) ? ` for ${textOf(raw.machine)}` : '') +
                         (raw.lossy === true ? ', lossy' : '')
                 })),
        ...all.runs.filter((run) => run.picture).map((run) => ({
                                                         picture: run.picture,
                                                         budget: 0,
                                                         predicted: run.predicted,
                                                         lossy: run.lossy,
                                                         group: run.group,
                                                         title: run.title
                                                     })),
    ];
    if (shown.length === 0) return;
    const made = section(
        'memory', 'Memory over the iteration',
        shown.some(({picture}) => picture.segments.length > 0) ?
            'Device memory at each step. Point at it for the tensors that lie there, their layers, and what was done ' +
                'with them; “by address” draws every segment where it lies.' :
            'Device memory at each step, by the counters of the trace.',
        'Memory');
    const scales = new Map();
    const panels = shown.map((one) => {
        const {picture, budget, predicted, lossy, group} = one;
        const chips = [predicted ? chip('predicted', 'predicted') : chip('of a run'), lossy && chip('lossy')];
        return new MemoryPanel(
            one, [chips, ...memoryFacts(picture, budget)],
            scaleOf(scales, group, Math.max(picture.extent, picture.most, budget)));
    });
    const bar =
        element('div', {class: 'sectionbar'}, memoryLegend(shown), scaleChoice(scales.size, shown.length, (common) => {
                    for (const scale of scales.values()) scale.common = common;
                    for (const panel of panels) panel.view.redraw();
                }));
    made.append(bar, ...panels.map((panel) => panel.box));
}
