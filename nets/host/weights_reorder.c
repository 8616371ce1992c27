/* SPDX-License-Identifier: MIT */
#include "nets/host/weights_reorder.h"

static void place_pieces(nets_piecewise *run, const nets_cut *cut, const nets_dnn_weight_items *items, int plain) {
    for (int i = 0; i < run->n_pieces; i++) {
        const int64_t first = i * cut->each;
        nets_piece *piece = &run->pieces[i];
        piece->kernel = i == cut->pieces - 1 && nets_dnn_is_made(&run->kernel[1]);
        piece->offset[plain] = first * items->bytes;
        piece->offset[1 - plain] = first / items->block * items->block_bytes;
    }
}

mm_status nets_weights_reorder_init(nets_piecewise *run, const nets_dnn *dnn, const nets_dnn_windows *w,
                                    const nets_dnn_kernel *kernel, int arg, bool adds) {
    enum { LEAST_ELEMS = 1 << 15 }; /* of a piece: some ten microseconds' work. Chosen */
    nets_dnn_weight_items items;
    MM_TRY(nets_dnn_weight_items_of(w, kernel, arg, &items));
    const nets_cut cut = nets_cut_of(items.n, nets_pieces(dnn->pool), items.block, LEAST_ELEMS / items.elems);
    const int64_t rest = nets_cut_rest(&cut);
    const nets_dnn_reorder some = {.n = cut.each, .adds = adds};
    const nets_dnn_reorder last = {.first = cut.items - rest, .n = rest, .adds = adds};
    MM_TRY(nets_dnn_weights_reorder(dnn, w, kernel, arg, &some, &run->kernel[0]));
    if (!nets_dnn_is_made(&run->kernel[0])) return MM_OK;
    if (rest != cut.each) MM_TRY(nets_dnn_weights_reorder(dnn, w, kernel, arg, &last, &run->kernel[1]));
    MM_TRY(nets_piecewise_init(run, cut.pieces));
    run->arg[0] = DNNL_ARG_FROM;
    run->arg[1] = DNNL_ARG_TO;
    place_pieces(run, &cut, &items, arg == DNNL_ARG_DIFF_WEIGHTS ? 1 : 0);
    nets_piecewise_measure(run);
    return MM_OK;
}
