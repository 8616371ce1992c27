/* SPDX-License-Identifier: MIT */
#include "tools/train/session_parts.h"

typedef struct score {
    int64_t images, labels, correct;
    double loss;
} score;

static mm_status evaluate_batch(session *s, score *all) {
    nets_batch batch;
    nets_result result;
    MM_TRY(nets_reader_next(s->test_data, &batch));
    nets_exec *exec = batch.n == session_eval_batch(s) ? s->eval : s->eval_last;
    MM_TRY(nets_exec_iteration(exec, batch.images, batch.labels, batch.n, 0, &result));
    all->images += batch.n;
    all->labels += session_labels(s, batch.n);
    all->correct += result.correct;
    all->loss += (double)result.loss * (double)batch.n;
    return MM_OK;
}

mm_status session_evaluate(session *s, bool quiet, double *accuracy_out, double *loss_out) {
    score all = {0};
    progress p;
    int64_t done = 0;
    MM_TRY(nets_reader_seek(s->test_data, 0, 0));
    progress_begin(&p, "evaluation", 0, s->test_size.batches, quiet);
    mm_status status = MM_OK;
    while (done < s->test_size.batches && !session_is_stopped(s) && (status = evaluate_batch(s, &all)) == MM_OK)
        progress_show(&p, ++done, "accuracy %.2f%%", 100.0 * (double)all.correct / (double)all.labels);
    progress_end(&p);
    MM_TRY(status);
    bool whole = done == s->test_size.batches;
    *accuracy_out = whole ? (double)all.correct / (double)all.labels : -1;
    *loss_out = whole ? all.loss / (double)all.images : -1;
    return MM_OK;
}
