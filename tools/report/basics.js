/* SPDX-License-Identifier: MIT */
'use strict';
// Shared by all scripts: elements, numbers with units, colours, and the tip: the box beside the pointer.
// Texts of the data enter the page as text nodes and attributes, never as HTML.

function element(name, attributes, ...children) {
    const svg = name.startsWith('svg:');
    const made =
        svg ? document.createElementNS('http://www.w3.org/2000/svg', name.slice(4)) : document.createElement(name);
    for (const [key, value] of Object.entries(attributes || {})) {
        if (value === null || value === undefined || value === false) continue;
        if (key.startsWith('on'))
            made.addEventListener(key.slice(2), value);
        else
            made.setAttribute(key, value === true ? '' : String(value));
    }
    made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
    return made;
}

const isNumber = (value) => typeof value === 'number' && Number.isFinite(value);
const numberOf = (value, otherwise = null) => (isNumber(value) ? value : otherwise);
const textOf = (value, otherwise = '') =>
    (typeof value === 'string' ? value :
         isNumber(value)       ? String(value) :
                                 otherwise);
const listOf = (value) => (Array.isArray(value) ? value : []);
const objectOf = (value) => (value && typeof value === 'object' && !Array.isArray(value) ? value : {});
const objectsOf = (value) => listOf(value).filter((one) => one && typeof one === 'object' && !Array.isArray(one));
const clamp = (value, low, high) => Math.min(Math.max(value, low), high);
const most = (values, otherwise = 0) => values.reduce((a, b) => (b > a ? b : a), otherwise);

// ---------------------------------------------------------------- numbers

const UNITS = [['TiB', 2 ** 40], ['GiB', 2 ** 30], ['MiB', 2 ** 20], ['KiB', 2 ** 10]];

// A size as the command prints it: 12GiB, 24.5MiB.
function sizeText(bytes) {
    if (!isNumber(bytes)) return '–';
    for (const [unit, one] of UNITS) {
        if (Math.abs(bytes) < one) continue;
        const value = bytes / one;
        if (Number.isInteger(value)) return value + unit;
        return value.toFixed(Math.abs(value) < 10 ? 2 : Math.abs(value) < 100 ? 1 : 0) + unit;
    }
    return Math.round(bytes) + 'B';
}

function timeText(us) {
    if (!isNumber(us)) return '–';
    const [value, unit] = us >= 1e6 ? [us / 1e6, 's'] : us >= 1e3 ? [us / 1e3, 'ms'] : [us, 'µs'];
    return value.toFixed(value < 10 ? 2 : value < 100 ? 1 : 0) + ' ' + unit;
}

function rateText(value) {
    if (!isNumber(value)) return '–';
    return value >= 1000 ? Math.round(value).toLocaleString('en') : value.toFixed(value < 10 ? 2 : 1);
}

const percentText = (share) =>
    (isNumber(share) ? (100 * share).toFixed(share !== 0 && Math.abs(share) < 0.1 ? 1 : 0) + '%' : '–');

// About n round numbers from low to high. binary: their step is a power of two, for bytes.
function ticksOf(low, high, n, binary) {
    const span = high - low || Math.abs(high) || 1;
    let step = binary ? 2 ** Math.ceil(Math.log2(span / n)) : 10 ** Math.floor(Math.log10(span / n));
    if (!binary) step *= [1, 2, 5, 10].find((factor) => (span / (step * factor)) <= n) || 10;
    const first = Math.ceil(low / step), count = Math.floor(high / step + 1e-9) - first + 1;
    return Array.from({length: isNumber(count) ? clamp(count, 0, 4 * n) : 0}, (_, i) => (first + i) * step);
}

// An axis that begins and ends at a tick, so that no value lies beyond the last one: {low, high, ticks}.
function axisOf(low, high, n, binary) {
    const [first, second] = ticksOf(low, high, n, binary), step = second > first ? second - first : high - low || 1;
    const down = Math.floor(low / step + 1e-9) * step, up = Math.ceil(high / step - 1e-9) * step;
    const count = Math.round((up - down) / step) + 1;
    return {
        low: down,
        high: up,
        ticks: Array.from({length: isNumber(count) ? clamp(count, 2, 4 * n) : 0}, (_, i) => down + i * step)
    };
}

// ---------------------------------------------------------------- colours

// What memory is used for, from the bottom up, as 'mm plan --svg' stacks it. kinds: its names in plans and traces.
const LAYERS = [
    {
        id: 'lasting',
        name: 'weights and states',
        kinds: ['weights', 'weight gradients', 'optimizer state', 'other state', 'alignment and others', 'persistent']
    },
    {id: 'stash', name: 'stashed feature maps', kinds: ['stashed feature maps']},
    {id: 'features', name: 'feature maps', kinds: ['feature maps']},
    {id: 'codes', name: 'codes', kinds: ['codes']},
    {id: 'buffers', name: 'tensor buffers', kinds: ['tensor buffers']},
    {id: 'maps', name: 'other feature maps', kinds: ['other feature maps']},
    {id: 'gradients', name: 'gradient maps', kinds: ['gradient maps']},
    {id: 'work', name: 'workspace', kinds: ['workspace']},
    {id: 'other', name: 'other', kinds: []},
];
const layerOfKind = (kind) => {
    const found = LAYERS.findIndex((layer) => layer.kinds.includes(kind));
    return found < 0 ? LAYERS.length - 1 : found;
};

const SERIES = 8;

let colours = new Map();  // CSS variable → colour in the present theme

// The present colour of a CSS variable, for canvases, which cannot use variables.
function colour(name) {
    if (!colours.has(name))
        colours.set(name, getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim());
    return colours.get(name);
}

// The index of a policy's colour and mark, the same in the whole page.
const seen = [];
function seriesOf(policy) {
    if (!seen.includes(policy)) seen.push(policy);
    return seen.indexOf(policy);
}

const MARKS = [
    (r) => `M${- r} 0A${r} ${r} 0 1 0 ${r} 0A${r} ${r} 0 1 0 ${- r} 0Z`,
    (r) => `M${- r} ${- r}H${r}V${r}H${- r}Z`,
    (r) => `M0 ${- 1.25 * r}L${1.2 * r} ${0.9 * r}H${- 1.2 * r}Z`,
    (r) => `M0 ${- 1.35 * r}L${1.35 * r} 0L0 ${1.35 * r}L${- 1.35 * r} 0Z`,
    (r) => `M0 ${1.25 * r}L${1.2 * r} ${- 0.9 * r}H${- 1.2 * r}Z`,
];

// The mark of a policy. It is hollow where the value is predicted, and that of a lossy policy has two whiskers, so that
// both can be told without colours. series null: no policy's, for a key.
function markOf(series, {predicted = false, lossy = false} = {}, radius = 4.5) {
    const of = series === null ? 'key' : 'series' + (series % SERIES), far = radius + 4;
    const d = MARKS[series === null ? 0 : (series + Math.floor(series / SERIES)) % MARKS.length](radius);
    return element(
        'svg:g', {class: of}, lossy && element('svg:path', {d: `M${- far} ${far}L${far} ${- far}`, class: 'whiskers'}),
        element('svg:path', {d, class: 'mark' + (predicted ? ' predicted' : '')}));
}

function markIcon(series, how) {
    return element('svg:svg', {class: 'icon', viewBox: '-10 -10 20 20', 'aria-hidden': 'true'}, markOf(series, how, 5));
}

// Explains lines, or bars, and marks. kinds: those of "measured", "predicted", "lossy" that are there. null: all is
// plain.
function markKey(kinds, bars = false) {
    if (!kinds.includes('predicted') && !kinds.includes('lossy')) return null;
    const line = (dashed) => element(
        'svg:svg', {class: 'icon wide', viewBox: '-17 -9 34 18', 'aria-hidden': 'true'},
        bars ?
            element(
                'svg:rect', {x: -8, y: -2, width: 16, height: 11, class: 'speed key' + (dashed ? ' predicted' : '')}) :
            element('svg:path', {d: 'M-17 0H17', class: 'line key' + (dashed ? ' dashed' : '')}),
        markOf(null, {predicted: dashed}, 5));
    const entries = {
        measured: [line(false), 'measured'],
        predicted: [line(true), 'predicted by simulation'],
        lossy: [markIcon(null, {lossy: true}), 'lossy'],
    };
    return element(
        'p', {class: 'legend key-of-marks'},
        Object.keys(entries)
            .filter((kind) => kinds.includes(kind))
            .map((kind) => element('span', null, entries[kind])));
}

// ---------------------------------------------------------------- the tip

const tip = {
    box: null,

    // Shows the tip at (x, y). lines: [label, value] or a text each.
    show(x, y, title, lines) {
        const box = this.box = this.box || document.getElementById('tip');
        box.replaceChildren(
            element('strong', null, title),
            element(
                'dl', null,
                lines.filter(Boolean).map((line) => (typeof line === 'string' ? element('dd', {class: 'wide'}, line) : [
                                              element('dt', null, line[0]), element('dd', null, line[1])
                                          ]))));
        box.hidden = false;
        const {offsetWidth: w, offsetHeight: h} = box;
        const left = x + 16 + w > innerWidth - 8 ? x - 16 - w : x + 16;
        box.style.left = clamp(left, 8, Math.max(8, innerWidth - w - 8)) + 'px';
        box.style.top = clamp(y + 16, 8, Math.max(8, innerHeight - h - 8)) + 'px';
    },

    hide() {
        if (this.box) this.box.hidden = true;
    },
};

// ---------------------------------------------------------------- parts of the page

// short: the title in the menu, which has little room.
function section(id, title, lead, short = title) {
    const made = element(
        'section', {id, 'aria-labelledby': id + '-title'}, element('h2', {id: id + '-title'}, title),
        lead && element('p', {class: 'lead'}, lead));
    document.getElementById('nav').append(element('a', {href: '#' + id}, short));
    document.getElementById('main').append(made);
    return made;
}

const chip = (text, kind) => element('span', {class: 'chip' + (kind ? ' ' + kind : '')}, text);

// A name such as freelunch:rate=4,when=always or layer1.0.relu2.out, which may be broken after its punctuation.
const breakable = (name) => name.split(/(?<=[.:,/])/).flatMap((part, i) => (i > 0 ? [element('wbr'), part] : [part]));

// A group of buttons, one of which is pressed. options: [value, text] each
function choice(label, options, value, onChange) {
    const group = element('div', {class: 'switch', role: 'group', 'aria-label': label});
    const press = (chosen) => {
        for (const button of group.children) button.setAttribute('aria-pressed', String(button.value === chosen));
    };
    for (const [key, text] of options)
        group.append(element(
            'button', {
                type: 'button',
                value: key,
                onclick: () => {
                    press(key);
                    onChange(key);
                }
            },
            text));
    press(value);
    return group;
}
