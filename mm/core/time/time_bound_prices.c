/* SPDX-License-Identifier: MIT */
#include <math.h>

#include "mm/core/time/time_bound_prices.h"

/* The ways in which a storage can be kept from before step c until it is read. A code of codec k: WAY_CODES + 2 k on
 * the device, WAY_CODES + 2 k + 1 in pinned memory. Recomputed by step s: -1 - s. */
enum { WAY_KEPT, WAY_SWAPPED, WAY_MASK, WAY_PINNED_MASK, WAY_CODES };

enum { SIGNS, ELEMENTS }; /* the forms in which a storage is held */

static double larger(double a, double b) { return a > b ? a : b; }

/* What a code in pinned memory takes. On its way to the host, and on its way back, either a copy moves it, or the codec
 * itself does while it works, whichever is cheaper. codec, link: ns of the codec and of the copy; [0] to the host, [1]
 * back. */
static mm_bound_amounts pinned_code(const mm_bound_amounts *prices, const double codec[2], const double link[2]) {
    static const mm_bound_resource on_codec[2] = {MM_BOUND_ENCODE, MM_BOUND_DECODE};
    static const mm_bound_resource on_link[2] = {MM_BOUND_OUT, MM_BOUND_IN};
    mm_bound_amounts way = {{0}};
    for (int side = 0; side < 2; side++) {
        const double direct = prices->of[on_codec[side]] * larger(codec[side], link[side]);
        const double copied = prices->of[on_codec[side]] * codec[side] + prices->of[on_link[side]] * link[side];
        way.of[on_codec[side]] = direct < copied ? larger(codec[side], link[side]) : codec[side];
        way.of[on_link[side]] = direct < copied ? 0 : link[side];
    }
    return way;
}

static mm_bound_amounts code_amounts(const mm_bound_model *m, int at, int way, const mm_bound_amounts *prices) {
    const mm_bound_code *code = &m->codes[at * m->facts->n_codecs + (way - WAY_CODES) / 2];
    mm_bound_amounts amounts;
    if ((way - WAY_CODES) % 2 == 0)
        return (mm_bound_amounts){.of = {[MM_BOUND_ENCODE] = code->ns[0],
                                         [MM_BOUND_DECODE] = code->ns[1],
                                         [MM_BOUND_DEVICE] = code->device_bytes}};
    amounts = pinned_code(prices, code->ns, code->link_ns);
    amounts.of[MM_BOUND_PINNED] = code->pinned_bytes;
    return amounts;
}

/* The time and the bytes that a way (WAY_...) takes. Not for recomputation. */
static mm_bound_amounts amounts_of(const mm_bound_model *m, int at, int way, const mm_bound_amounts *prices) {
    static const double codec[2] = {0, 0};
    const mm_bound_storage *storage = &m->storages[at];
    const double link[2] = {storage->mask_ns, 0}; /* steps read a mask in pinned memory in place */
    mm_bound_amounts amounts = {{0}};
    switch (way) {
    case WAY_KEPT:
        amounts.of[MM_BOUND_DEVICE] = storage->bytes;
        break;
    case WAY_SWAPPED:
        amounts.of[MM_BOUND_OUT] = storage->copy_ns[0];
        amounts.of[MM_BOUND_IN] = storage->copy_ns[1];
        amounts.of[MM_BOUND_PINNED] = storage->bytes;
        break;
    case WAY_MASK:
        amounts.of[MM_BOUND_DEVICE] = storage->mask_bytes;
        break;
    case WAY_PINNED_MASK:
        amounts = pinned_code(prices, codec, link);
        amounts.of[MM_BOUND_PINNED] = storage->mask_bytes;
        break;
    default:
        return code_amounts(m, at, way, prices);
    }
    return amounts;
}

static void consider(const mm_bound_model *m, int at, int form, int way, const mm_bound_amounts *prices) {
    mm_bound_storage *storage = &m->storages[at];
    const mm_bound_amounts amounts = amounts_of(m, at, way, prices);
    double price = 0;
    for (int i = 0; i < MM_BOUND_RESOURCES; i++) price += amounts.of[i] * prices->of[i];
    if (price >= storage->price[form]) return;
    storage->price[form] = price;
    storage->way[form] = way;
}

/* Finds the cheapest ways, recomputation aside. */
static void price_held(const mm_bound_model *m, int at, const mm_bound_amounts *prices) {
    mm_bound_storage *storage = &m->storages[at];
    storage->taken[SIGNS] = storage->taken[ELEMENTS] = 0;
    storage->price[SIGNS] = HUGE_VAL;
    const double *price = prices->of;
    storage->price[ELEMENTS] = storage->bytes * price[MM_BOUND_DEVICE];
    storage->way[ELEMENTS] = WAY_KEPT;
    const double swapped = storage->copy_ns[0] * price[MM_BOUND_OUT] + storage->copy_ns[1] * price[MM_BOUND_IN] +
                           storage->bytes * price[MM_BOUND_PINNED];
    if (m->pinned && swapped < storage->price[ELEMENTS]) {
        storage->price[ELEMENTS] = swapped;
        storage->way[ELEMENTS] = WAY_SWAPPED;
    }
    if (storage->need == MM_BOUND_SIGN) consider(m, at, SIGNS, WAY_MASK, prices);
    if (storage->need == MM_BOUND_SIGN && m->pinned) consider(m, at, SIGNS, WAY_PINNED_MASK, prices);
    for (int c = 0; c < m->facts->n_codecs; c++) {
        if (!m->codes[at * m->facts->n_codecs + c].possible) continue;
        consider(m, at, ELEMENTS, WAY_CODES + 2 * c, prices);
        if (m->pinned) consider(m, at, ELEMENTS, WAY_CODES + 2 * c + 1, prices);
    }
}

/* The share of an input's cost that each recomputed step is charged; the cost is what its elements take beyond what is
 * needed of it anyway. 0: the step is charged nothing. */
static double share_of(const mm_bound_storage *input) {
    if (!input->plain || input->readers == 0 || input->need >= MM_BOUND_VALUE) return 0;
    return input->need == MM_BOUND_SIGN && input->price[SIGNS] >= input->price[ELEMENTS] ? 0 : 1.0 / input->readers;
}

/* Considers recomputing the step. Its price is divided among its outputs by their bytes. */
static void price_again(mm_bound_model *m, int s, const mm_bound_amounts *prices) {
    double price = m->again_ns[s] * prices->of[MM_BOUND_AGAIN];
    for (int i = m->first_link[s]; i < m->first_link[s + 1]; i++) {
        mm_bound_storage *storage = &m->storages[m->links[i].storage];
        if (m->links[i].part < 0) { /* inputs come first */
            const double share = share_of(storage);
            if (share == 0) continue;
            price += share * (storage->price[ELEMENTS] - (storage->need == MM_BOUND_SIGN ? storage->price[SIGNS] : 0));
        } else if (price * m->links[i].part < storage->price[ELEMENTS]) {
            storage->price[ELEMENTS] = price * m->links[i].part;
            storage->way[ELEMENTS] = -1 - s;
        }
    }
}

/* Counts a recomputed step, and its inputs, as far as its outputs need it. */
static void take_again(mm_bound_model *m, int s, mm_bound_amounts *sum) {
    double taken = 0;
    for (int i = m->first_link[s + 1] - 1; i >= m->first_link[s]; i--) {
        mm_bound_storage *storage = &m->storages[m->links[i].storage];
        if (m->links[i].part >= 0) {
            if (storage->way[ELEMENTS] == -1 - s) taken += storage->taken[ELEMENTS] * m->links[i].part;
            continue;
        }
        const double share = taken > 0 ? share_of(storage) : 0;
        storage->taken[ELEMENTS] += share * taken;
        if (storage->need == MM_BOUND_SIGN) storage->taken[SIGNS] -= share * taken;
    }
    sum->of[MM_BOUND_AGAIN] += taken * m->again_ns[s];
}

/* Adds what the storage takes in a form, as often as that counts; recomputation is added by take_again. */
static void add_held(const mm_bound_model *m, int at, int form, const mm_bound_amounts *prices, mm_bound_amounts *sum) {
    const mm_bound_storage *storage = &m->storages[at];
    if (storage->taken[form] == 0 || storage->way[form] < 0) return;
    const mm_bound_amounts amounts = amounts_of(m, at, storage->way[form], prices);
    for (int i = 0; i < MM_BOUND_RESOURCES; i++) sum->of[i] += storage->taken[form] * amounts.of[i];
}

mm_bound_amounts mm_bound_cheapest(mm_bound_model *m, const mm_bound_amounts *prices) {
    mm_bound_amounts sum = {{0}};
    for (int i = 0; i < m->n_storages; i++)
        if (m->storages[i].first < m->cut) price_held(m, i, prices);
    for (int s = 0; s < m->cut; s++)
        if (m->again_ns[s] >= 0) price_again(m, s, prices);
    for (int i = 0; i < m->n_storages; i++) {
        mm_bound_storage *storage = &m->storages[i];
        const bool sign = storage->need == MM_BOUND_SIGN && storage->price[SIGNS] < storage->price[ELEMENTS];
        if (storage->need == MM_BOUND_SIGN || storage->need == MM_BOUND_VALUE)
            storage->taken[sign ? SIGNS : ELEMENTS] = 1;
    }
    for (int s = m->cut - 1; s >= 0; s--)
        if (m->again_ns[s] >= 0) take_again(m, s, &sum);
    for (int i = 0; i < m->n_storages; i++)
        for (int form = 0; form < 2 && m->storages[i].first < m->cut; form++) add_held(m, i, form, prices, &sum);
    mm_bound_visitors_add(m, prices, &sum);
    return sum;
}
