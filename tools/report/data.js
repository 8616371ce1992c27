/* SPDX-License-Identifier: MIT */
// Turns the data of the files into what the pictures need. Nothing is assumed about a file: a value that is missing or
// has another type counts as unknown.

// ---------------------------------------------------------------- memory

const PHASES = ['forward', 'backward', 'update'];

// [{name, begin, end}]: ranges of columns with the same phase. A column without a phase belongs to the range before it.
function phasesOf(names) {
    const runs = [];
    names.forEach((name, i) => {
        if (!PHASES.includes(name)) return;
        if (runs.length === 0 || runs[runs.length - 1].name !== name) runs.push({name, begin: i});
    });
    runs.forEach((run, i) => {
        run.end = i + 1 < runs.length ? runs[i + 1].begin : names.length;
    });
    return runs;
}

const emptyStacks = (n) => LAYERS.map(() => new Float64Array(n));

// Adds to a picture (memory over columns, stacked by LAYERS): each column's total, and the column with the largest.
function pictureOf(picture) {
    const {stacks, n} = picture, total = new Float64Array(n);
    for (const stack of stacks)
        for (let i = 0; i < n; i++) total[i] += stack[i];
    const peak = total.reduce((best, bytes, i) => (bytes > total[best] ? i : best), 0);
    return Object.assign(picture, {
        total,
        peak,
        most: total[peak],
        used: LAYERS.map((_, l) => l).filter((l) => stacks[l].some((bytes) => bytes > 0))
    });
}

// The plan has no offset for segments that are allocated at run time. Places them in the first gap above the others.
function placeDynamic(segments) {
    const base = most(segments.filter((s) => !s.dynamic && !s.pinned).map((s) => s.offset + s.bytes));
    let placed = [];
    for (const s of segments.filter((one) => one.dynamic && !one.pinned).sort((a, b) => a.first - b.first)) {
        placed = placed.filter((p) => p.last >= s.first);
        s.offset = base;
        for (const p of placed.sort((a, b) => a.offset - b.offset)) {
            if (p.offset >= s.offset + s.bytes) break;
            s.offset = Math.max(s.offset, p.offset + p.bytes);
        }
        placed.push(s);
    }
}

function segmentsOf(memory, n) {
    const inside = (value, otherwise) => clamp(Math.trunc(numberOf(value, otherwise)), 0, Math.max(0, n - 1));
    const segments = objectsOf(memory.segments).map((raw) => {
        const lasting = raw.action === 'lasting';
        return {
            name: textOf(raw.name),
            layer: textOf(raw.layer),
            kind: textOf(raw.kind),
            content: textOf(raw.content),
            action: textOf(raw.action),
            codec: textOf(raw.codec),
            lasting,
            pinned: raw.pinned === true,
            dynamic: raw.dynamic === true,
            depth: layerOfKind(textOf(raw.kind)),
            offset: numberOf(raw.offset, 0),
            bytes: Math.max(0, numberOf(raw.bytes, 0)),
            first: lasting ? 0 : inside(raw.first, 0),
            last: lasting ? n - 1 : inside(raw.live_last, n - 1),
            user: lasting ? n - 1 : inside(raw.last, n - 1),
        };
    });
    placeDynamic(segments);
    return segments;
}

// The picture of a plan's memory (mm/core/account/plan_memory.h): a column for each node.
function pictureOfPlan(memory) {
    const nodes = objectsOf(memory.nodes), n = nodes.length;
    if (n === 0) return null;
    const stacks = emptyStacks(n), segments = segmentsOf(memory, n);
    const change = LAYERS.map(() => new Float64Array(n + 1));
    for (const [kind, bytes] of Object.entries(objectOf(memory.lasting)))
        change[layerOfKind(kind)][0] += numberOf(bytes, 0);
    for (const s of segments) {
        if (s.lasting || s.pinned) continue;
        change[s.depth][s.first] += s.bytes;
        change[s.depth][s.last + 1] -= s.bytes;
    }
    stacks.forEach((stack, l) => {
        for (let i = 0, now = 0; i < n; i++) stack[i] = now += change[l][i];
    });
    const maps = objectsOf(memory.maps).map((raw) => ({
                                                name: textOf(raw.name),
                                                layer: textOf(raw.layer),
                                                kind: textOf(raw.layer_kind),
                                                bytes: numberOf(raw.bytes, 0),
                                                held: numberOf(raw.held_bytes),
                                                codec: textOf(raw.codec),
                                                readers: listOf(raw.readers).map((one) => textOf(one)),
                                                actions: listOf(raw.actions).map((one) => textOf(one)),
                                            }));
    const homes = objectsOf(memory.homes).map((raw) => ({
                                                  name: textOf(raw.name),
                                                  kind: textOf(raw.kind),
                                                  bytes: numberOf(raw.bytes, 0),
                                                  place: textOf(raw.place),
                                                  visits: listOf(raw.visits).map((one) => listOf(one)),
                                              }));
    return pictureOf({
        n,
        stacks,
        segments,
        maps,
        homes,
        decisions: new Map(maps.map((map) => [map.name, map])),
        names: nodes.map((node) => textOf(node.name)),
        streams: nodes.map((node) => textOf(node.stream)),
        phases: phasesOf(nodes.map(
            (node) =>
                (node.stream === 'compute' && !textOf(node.name).startsWith('recompute ') ? textOf(node.phase) : ''))),
        extent: most(segments.filter((s) => !s.pinned).map((s) => s.offset + s.bytes)),
        pinned: most(segments.filter((s) => s.pinned).map((s) => s.offset + s.bytes)),
    });
}

// The picture of a trace without a plan: a column for each memory counter of one iteration. Each counter belongs to a
// step.
function pictureOfCounters(counters, slices, iteration) {
    const inside = (t) => !iteration || (t >= iteration.begin - 1e-3 && t < iteration.end);
    const points = counters.filter((one) => inside(one.t)), n = points.length;
    if (n === 0) return null;
    const steps = slices.filter((s) => inside(s.begin) && (PHASES.includes(s.kind) || s.kind === 'recompute'));
    const stacks = emptyStacks(n);
    points.forEach((one, i) => {
        for (const [kind, bytes] of Object.entries(one.args)) stacks[layerOfKind(kind)][i] += numberOf(bytes, 0);
    });
    const names = points.map((one, i) => {
        const step = steps.length === n ? steps[i] : steps.find((s) => s.begin <= one.t + 1e-3 && one.t < s.end);
        return step ? step.name : timeText(one.t - points[0].t);
    });
    return pictureOf({
        n,
        stacks,
        segments: [],
        maps: [],
        homes: [],
        decisions: new Map(),
        names,
        streams: [],
        phases: phasesOf(names.map((name) => name.split(' ').pop())),
        extent: 0,
        pinned: 0
    });
}

// ---------------------------------------------------------------- traces

const KINDS = ['wait', 'iteration', 'encode', 'decode', 'offload', 'prefetch', 'recompute', 'measure', ...PHASES];

// The kind of an event: its category, action or phase, else the first or last word of its name.
function classOf(event) {
    const args = objectOf(event.args), words = textOf(event.name).split(' ');
    const said =
        [...textOf(event.cat).split(','), textOf(args.action), textOf(args.phase), words[0], words[words.length - 1]];
    return said.find((word) => KINDS.includes(word)) || 'other';
}

// Sets each slice's depth: the number of slices that enclose it.
function nest(slices) {
    const open = [];
    slices.sort((a, b) => a.begin - b.begin || b.end - a.end);
    for (const slice of slices) {
        while (open.length > 0 && open[open.length - 1].end <= slice.begin + 1e-6) open.pop();
        slice.depth = slice.end - slice.begin < 1e-6 ? 0 : open.length;  // a slice without duration hides nothing
        if (slice.depth === open.length) open.push(slice);
    }
}

// Splits the name of a run, such as "resnet32 b128 freelunch:when=always 700MiB".
function nameParts(name) {
    const found = /^(\S+) b(\d+) (\S+)(?: (.*))?$/.exec(name);
    return found ? {group: `${found[1]}, batch ${found[2]}`, policy: found[3], rest: found[4] || ''} :
                   {group: name, policy: name, rest: ''};
}

function runOf(pid, source) {
    return {
        pid,
        source,
        name: 'process ' + pid,
        order: 0,
        tracks: new Map(),
        counters: [],
        flows: new Map(),
        memories: [],
        labels: '',
        predicted: false,
        lossy: false
    };
}

function trackOf(run, tid) {
    if (!run.tracks.has(tid)) run.tracks.set(tid, {tid, name: 'thread ' + tid, order: numberOf(tid, 0), slices: []});
    return run.tracks.get(tid);
}

function addMetadata(run, event) {
    const args = objectOf(event.args);
    if (event.name === 'process_name') run.name = textOf(args.name, run.name);
    if (event.name === 'process_labels') {
        run.labels = textOf(args.labels);
        run.predicted = args.times === 'predicted';
        run.lossy = args.lossy === true;
    }
    if (event.name === 'process_sort_index') run.order = numberOf(args.sort_index, 0);
    if (event.name === 'thread_name') trackOf(run, event.tid).name = textOf(args.name);
    if (event.name === 'thread_sort_index') trackOf(run, event.tid).order = numberOf(args.sort_index, 0);
    if (event.name === 'memory') run.memories.push(args);
}

function addEvent(run, event) {
    const t = numberOf(event.ts);
    if (event.ph === 'M') addMetadata(run, event);
    if (t === null) return;
    if (event.ph === 'X') {
        const track = trackOf(run, event.tid), kind = classOf(event);
        track.slices.push({
            name: textOf(event.name),
            begin: t,
            end: t + Math.max(0, numberOf(event.dur, 0)),
            kind,
            wait: kind === 'wait',
            args: objectOf(event.args),
            track
        });
    }
    if (event.ph === 'C') run.counters.push({name: textOf(event.name), t, args: objectOf(event.args)});
    if (['s', 't', 'f'].includes(event.ph)) {
        const key = textOf(event.cat) + ' ' + textOf(event.id);
        if (!run.flows.has(key)) run.flows.set(key, []);
        run.flows.get(key).push({t, tid: event.tid, ph: event.ph});
    }
}

// The iterations of a run: from slices of kind "iteration", else from the iteration numbers of the other slices.
function iterationsOf(slices) {
    const found = new Map(), own = slices.filter((s) => s.kind === 'iteration');
    for (const s of own.length > 0 ? own : slices) {
        const number = numberOf(s.args.iteration);
        if (number === null) continue;
        const one = found.get(number) || {number, begin: Infinity, end: -Infinity, args: s.args};
        one.begin = Math.min(one.begin, s.begin);
        one.end = Math.max(one.end, s.end);
        found.set(number, one);
    }
    return [...found.values()].sort((a, b) => a.number - b.number);
}

// The slice of a track, other than a wait, that contains time t. Slices are sorted by their begin.
function sliceAt(track, t) {
    let low = 0, high = track.slices.length;
    while (low < high) {
        const middle = (low + high) >> 1;
        if (track.slices[middle].begin <= t + 1e-3)
            low = middle + 1;
        else
            high = middle;
    }
    for (let i = low - 1; i >= 0 && i >= low - 8; i--)  // waits and slices without duration may come in between
        if (!track.slices[i].wait && t <= track.slices[i].end + 1e-3) return track.slices[i];
    return null;
}

// Turns each flow into a chain of the slices that its points lie in.
function bindFlows(run) {
    run.chains = [];
    for (const points of run.flows.values()) {
        points.sort((a, b) => a.t - b.t);
        let chain = [];
        for (const point of points) {
            if (point.ph === 's') chain = [];
            const track = run.tracks.get(point.tid), slice = track && sliceAt(track, point.t);
            if (slice) chain.push(slice);
            if (point.ph === 'f' && chain.length > 1) run.chains.push(chain);
        }
    }
    for (const chain of run.chains)
        for (const slice of chain) (slice.chains = slice.chains || []).push(chain);
}

// The plan of the run's last iteration; a run may have had several plans.
function memoryOf(run, last) {
    const same = (memory, key) => !last || !last.args[key] || last.args[key] === memory[key];
    return run.memories.filter((memory) => same(memory, 'policy') && same(memory, 'graph')).pop() ||
        run.memories.pop() || null;
}

function finishRun(run) {
    const tracks =
        [...run.tracks.values()].filter((track) => track.slices.length > 0).sort((a, b) => a.order - b.order);
    const all = tracks.flatMap((track) => track.slices);
    run.iterations = iterationsOf(all);
    run.begin = all.reduce((a, s) => Math.min(a, s.begin), Infinity);
    run.end = all.reduce((a, s) => Math.max(a, s.end), -Infinity);
    for (const track of tracks) nest(track.slices);
    Object.assign(run, nameParts(run.name));
    run.title = run.group === run.policy ? run.name : `${run.group}, ${run.policy}${run.rest ? ', ' + run.rest : ''}`;
    if (run.labels) run.title += `: ${run.labels}`;
    bindFlows(run);
    run.tracks = tracks.filter((track) => track.slices.some((s) => s.kind !== 'iteration'));
    const last = run.iterations[run.iterations.length - 1];
    const counters = run.counters.filter((one) => one.name.includes('memory')).sort((a, b) => a.t - b.t);
    const compute = run.tracks.find((track) => track.slices.some((s) => PHASES.includes(s.kind)));
    const memory = memoryOf(run, last);
    run.picture = memory ? pictureOfPlan(memory) : pictureOfCounters(counters, compute ? compute.slices : [], last);
    run.flows = run.counters = run.memories = null;
    return run;
}

function runsOf(trace, source) {
    const runs = new Map();
    for (const event of objectsOf(Array.isArray(trace) ? trace : trace.traceEvents)) {
        const pid = isNumber(event.pid) || typeof event.pid === 'string' ? event.pid : 0;
        if (!runs.has(pid)) runs.set(pid, runOf(pid, source));
        addEvent(runs.get(pid), event);
    }
    return [...runs.values()].sort((a, b) => a.order - b.order || (a.pid > b.pid ? 1 : -1)).map(finishRun);
}

// ---------------------------------------------------------------- plans

// A plan with its picture. Adds to each map what else could be done with it (--explain).
function planOf(raw, source) {
    const picture = raw.memory ? pictureOfPlan(objectOf(raw.memory)) : null;
    for (const told of picture ? objectsOf(raw.stashed_maps) : []) {
        const map = picture.decisions.get(textOf(told.name));
        if (!map) continue;
        map.seconds = numberOf(told.decided_seconds);
        map.others = objectsOf(told.remedies).map((one) => ({
                                                      action: textOf(one.action),
                                                      codec: textOf(one.codec),
                                                      left: numberOf(one.bytes_left),
                                                      seconds: numberOf(one.seconds)
                                                  }));
    }
    return {raw, source, picture};
}

// ---------------------------------------------------------------- logs

// A log's lines as objects: {iteration, loss, seconds, ...} of iterations, {iteration, test_loss, test_accuracy} of
// evaluations.
function logOf(data, source) {
    const columns = listOf(objectOf(data).columns).map((name) => textOf(name));
    const lines = listOf(objectOf(data).lines)
                      .map((line) => Object.fromEntries(columns.map((name, i) => [name, numberOf(listOf(line)[i])])))
                      .filter((line) => line.iteration !== null && line.iteration !== undefined);
    const isTest = (line) => isNumber(line.test_accuracy);
    return {source, lines: lines.filter((line) => !isTest(line)), tests: lines.filter(isTest)};
}

// ---------------------------------------------------------------- all

function readData() {
    const data = JSON.parse(document.getElementById('data').textContent);
    const all =
        {version: textOf(data.mm), files: objectsOf(data.files), rows: [], plans: [], runs: [], logs: [], dropped: 0};
    for (const file of all.files) {
        const source = textOf(file.name);
        if (file.kind === 'rows') all.rows.push(...objectsOf(file.data));
        if (file.kind === 'plans') all.plans.push(...objectsOf(file.data).map((raw) => planOf(raw, source)));
        if (file.kind === 'log') all.logs.push(logOf(file.data, source));
        if (file.kind === 'trace') {
            all.runs.push(...runsOf(file.data, source));
            all.dropped += numberOf(objectOf(file.data.otherData).dropped, 0);
        }
    }
    for (const row of all.rows) seriesOf(textOf(row.policy));
    for (const plan of all.plans) seriesOf(textOf(plan.raw.policy));
    for (const run of all.runs) seriesOf(run.policy);
    return all;
}
