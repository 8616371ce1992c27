/* SPDX-License-Identifier: MIT */
// A canvas at the screen's resolution that zooms and pans along x, and shows a tip for what is under the pointer or
// under a cursor, which the arrow keys move. The highlight is drawn on a second canvas above, so that thousands of
// parts need no redrawing.

const views = [];

class View {
    // label: for screen readers. height: CSS pixels. margins: around the plot. span: [begin, end] of all values of x.
    // draw(context, view): draws the picture. find(x, y, view), in pixels: the tip {title, lines, mark(context)}, or
    // null. step(cursor, dx, dy): the next cursor (x: a value, y: a pixel; undefined at first). tipBelow: the tip
    // stands below the picture.
    constructor(options) {
        Object.assign(this, {margins: {left: 64, right: 12, top: 8, bottom: 22}}, options);
        [this.begin, this.end] = this.span;
        this.canvas = element('canvas', {});
        this.above = element('canvas', {class: 'above'});
        this.box = element(
            'div', {
                class: 'view',
                tabindex: 0,
                role: 'application',
                'aria-label': this.label,
                'aria-roledescription': 'picture'
            },
            this.canvas, this.above);
        this.listen();
        views.push(this);
        new ResizeObserver(() => this.redraw()).observe(this.box);
    }

    get width() { return this.box.clientWidth; }
    get plotWidth() { return Math.max(1, this.width - this.margins.left - this.margins.right); }
    get plotHeight() { return this.height - this.margins.top - this.margins.bottom; }
    xOf(value) { return this.margins.left + (value - this.begin) / (this.end - this.begin) * this.plotWidth; }
    valueAt(x) { return this.begin + (x - this.margins.left) / this.plotWidth * (this.end - this.begin); }

    redraw() {
        if (this.width === 0) return;
        this.box.style.height = this.height + 'px';
        for (const canvas of [this.canvas, this.above]) {
            const scale = devicePixelRatio || 1;
            canvas.width = Math.round(this.width * scale);
            canvas.height = Math.round(this.height * scale);
            canvas.getContext('2d').setTransform(scale, 0, 0, scale, 0, 0);
        }
        const context = this.canvas.getContext('2d');
        context.font = '12px system-ui, sans-serif';
        context.textBaseline = 'middle';
        this.draw(context, this);
    }

    clearAbove() { this.above.getContext('2d').clearRect(0, 0, this.width, this.height); }

    leave() {
        this.clearAbove();
        tip.hide();
    }

    // Shows what lies at a point of the picture.
    point(x, y) {
        this.clearAbove();
        const found = x >= this.margins.left && x <= this.width - this.margins.right ? this.find(x, y, this) : null;
        if (!found) return tip.hide();
        const context = this.above.getContext('2d'), box = this.box.getBoundingClientRect();
        context.save();
        found.mark(context);
        context.restore();
        tip.show(
            box.left + x, this.tipBelow ? Math.max(box.top + y, box.bottom - 24) : box.top + y, found.title,
            found.lines);
    }

    // ------------------------------------------------------------ zoom

    show(begin, end) {
        const [low, high] = this.span, least = this.least || (high - low) / 1e5;
        const width = clamp(end - begin, least, high - low);
        this.begin = clamp(begin, low, high - width);
        this.end = this.begin + width;
        this.leave();
        this.redrawSoon();
    }

    // Redraws at most once a frame.
    redrawSoon() {
        if (!this.frame)
            this.frame = requestAnimationFrame(() => {
                this.frame = 0;
                this.redraw();
            });
    }

    zoom(factor, x = this.margins.left + this.plotWidth / 2) {
        const at = this.valueAt(x);
        this.show(at - (at - this.begin) * factor, at + (this.end - at) * factor);
    }

    pan(pixels) {
        const by = pixels / this.plotWidth * (this.end - this.begin);
        this.show(this.begin + by, this.end + by);
    }

    zoomButtons() {
        const button = (text, label, act) =>
            element('button', {type: 'button', 'aria-label': label, title: label, onclick: act}, text);
        return element(
            'div', {class: 'switch zoom', role: 'group', 'aria-label': 'Zoom'},
            button('−', 'Zoom out', () => this.zoom(2)), button('+', 'Zoom in', () => this.zoom(0.5)),
            button('all', 'Show all', () => this.show(...this.span)));
    }

    // ------------------------------------------------------------ input

    listen() {
        const box = this.box;
        let dragged = null;
        box.addEventListener('pointerdown', (event) => {
            if (event.button !== 0 || event.pointerType === 'touch') return;
            dragged = event.clientX;
            box.setPointerCapture(event.pointerId);
        });
        box.addEventListener('pointermove', (event) => {
            if (dragged !== null && Math.abs(event.clientX - dragged) > 2) {
                this.pan(dragged - event.clientX);
                dragged = event.clientX;
                return;
            }
            const frame = box.getBoundingClientRect();
            this.point(event.clientX - frame.left, event.clientY - frame.top);
        });
        box.addEventListener('pointerup', () => {
            dragged = null;
        });
        box.addEventListener('pointerleave', () => this.leave());
        box.addEventListener('blur', () => this.leave());
        box.addEventListener('dblclick', (event) => this.zoom(0.4, event.clientX - box.getBoundingClientRect().left));
        box.addEventListener('wheel', (event) => {
            if (!event.ctrlKey && !event.shiftKey) return;  // leaves the event to the page, which scrolls
            event.preventDefault();
            this.zoom(
                (event.deltaY || event.deltaX) > 0 ? 1.25 : 0.8, event.clientX - box.getBoundingClientRect().left);
        }, {passive: false});
        box.addEventListener('keydown', (event) => this.key(event));
    }

    key(event) {
        const moves = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1]};
        if (event.ctrlKey || event.metaKey || event.altKey) return;
        if (event.key === '+' || event.key === '=')
            this.zoom(0.5);
        else if (event.key === '-')
            this.zoom(2);
        else if (event.key === '0')
            this.show(...this.span);
        else if (event.key === 'Escape')
            this.leave();
        else if (moves[event.key])
            this.moveCursor(...moves[event.key]);
        else
            return;
        event.preventDefault();
    }

    moveCursor(dx, dy) {
        this.cursor = this.step(this.cursor, dx, dy, this);
        const {x} = this.cursor;
        if (x < this.begin || x > this.end) this.show(x - (this.end - this.begin) / 2, x + (this.end - this.begin) / 2);
        this.point(this.xOf(x), this.cursor.y);
    }
}

function redrawAll() {
    colours = new Map();
    hatch = null;
    for (const view of views) view.redraw();
}

// ---------------------------------------------------------------- drawing

// The text, cut to fit; '' if too little of it would fit.
function fitText(context, text, width) {
    if (width < 24) return '';
    if (context.measureText(text).width <= width) return text;
    let length = Math.floor(text.length * width / context.measureText(text).width);
    while (length > 3 && context.measureText(text.slice(0, length) + '…').width > width) length--;
    return length > 3 ? text.slice(0, length) + '…' : '';
}

const HATCH = 9;   // pixels from line to line
let hatch = null;  // pattern in the present theme

// Draws lines over a part of a picture that shows what is predicted. region: [x, y, width, height], or null: the path.
function drawHatch(context, region) {
    if (!hatch) {
        const scale = 4, tile = document.createElement('canvas'), side = tile.width = tile.height = HATCH * scale;
        const lines = tile.getContext('2d');
        lines.strokeStyle = colour('card');
        lines.lineWidth = 1.3 * scale;
        for (const from of [-side, 0, side]) {
            lines.beginPath();
            lines.moveTo(from - side, 2 * side);
            lines.lineTo(from + 2 * side, -side);
            lines.stroke();
        }
        hatch = context.createPattern(tile, 'repeat');
        hatch.setTransform(new DOMMatrix([1 / scale, 0, 0, 1 / scale, 0, 0]));
    }
    context.fillStyle = hatch;
    if (region)
        context.fillRect(...region);
    else
        context.fill();
}

function drawSizeAxis(context, view, top) {
    const {left, right, top: above} = view.margins;
    context.textAlign = 'right';
    for (const bytes of ticksOf(0, top, 5, true)) {
        const y = Math.round(above + view.plotHeight * (1 - bytes / top)) + 0.5;
        context.strokeStyle = colour('grid');
        context.beginPath();
        context.moveTo(left, y);
        context.lineTo(view.width - right, y);
        context.stroke();
        context.fillStyle = colour('muted');
        context.fillText(bytes ? sizeText(bytes) : '0', left - 8, y);
    }
}
