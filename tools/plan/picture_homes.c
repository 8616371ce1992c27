/* SPDX-License-Identifier: MIT */
/* One band for each kind of tensor and memory. A tensor is a row of its band; a bar in it, a copy on the device.
 *
 *   weights in pinned memory: 12 of 3.2MiB
 *   ██    ██
 *     ██  ██  */
#include "tools/plan/picture_homes.h"

#include <stdlib.h>
#include <string.h>

#include "mm/core/size.h"
#include "mm/core/status.h"

enum { HEAD = 26, LABEL = 15, ROW = 4, LEAST = 8, MOST = 48, LASTING = 6, GAP = 9, COLUMNS = 444 };

/* Light, so that what is on the device stands out. */
static const char *const COLOURS[] = {[MM_MEM_PINNED] = "#dbe9f6", [MM_MEM_DISK] = "#f5e6cc"};

static int band_height(const picture_group *g) {
    if (g->memory == MM_MEM_DEVICE) return LASTING;
    const int rows = g->n * ROW;
    return rows < LEAST ? LEAST : rows > MOST ? MOST : rows;
}

int picture_homes_height(const picture_homes *homes) {
    int height = homes->n > 0 ? HEAD : 0;
    for (int i = 0; i < homes->n; i++) height += LABEL + band_height(&homes->groups[i]) + GAP;
    return height;
}

/* Draws the visits as one path of bars. Rows and columns are at most as many as can be told apart, so its length does
 * not grow with the network. */
static void draw_visits(FILE *f, const picture_group *g, int left, int right, double y, int n_steps) {
    enum { ROWS = MOST / ROW };
    const int height = band_height(g), rows = g->n < ROWS ? g->n : ROWS,
              columns = n_steps < COLUMNS ? n_steps : COLUMNS;
    uint8_t on[ROWS][COLUMNS + 1];
    memset(on, 0, sizeof on);
    for (int i = 0; i < g->n_visits; i++) {
        const picture_visit *v = &g->visits[i];
        const int row = (int)((int64_t)v->row * rows / g->n);
        const int begin = (int)((int64_t)v->begin * columns / n_steps),
                  end = (int)((int64_t)v->end * columns / n_steps);
        memset(&on[row][begin], 1, (size_t)(end - begin + 1));
    }
    const double wide = (double)(right - left) / columns, high = (double)height / rows;
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < columns; c++) {
            int end = c;
            while (end < columns && on[r][end]) end++;
            if (end == c) continue;
            fprintf(f, "M%.1f %.1fh%.1fv%.1fh%.1fz", left + c * wide, y + r * high + 0.5, (end - c) * wide, high - 1,
                    -(end - c) * wide);
            c = end;
        }
}

void picture_homes_draw(FILE *f, const picture_homes *homes, int left, int right, double y, int n_steps,
                        const char *device) {
    if (homes->n == 0) return;
    fprintf(f, "<text x=\"%d\" y=\"%.1f\" class=\"name\">Homes of weights and state. Dark: on the device</text>\n",
            left, y + 14);
    y += HEAD;
    for (int i = 0; i < homes->n; i++) {
        const picture_group *g = &homes->groups[i];
        const int height = band_height(g);
        fprintf(f, "<text x=\"%d\" y=\"%.1f\" class=\"tick\">%s</text>\n", left, y + LABEL - 4, g->label);
        y += LABEL;
        fprintf(f, "<rect x=\"%d\" y=\"%.1f\" width=\"%d\" height=\"%d\" fill=\"%s\"/>\n", left, y, right - left,
                height, g->memory == MM_MEM_DEVICE ? device : COLOURS[g->memory]);
        if (g->n_visits > 0) {
            fprintf(f, "<path class=\"visits\" fill=\"%s\" d=\"", device);
            draw_visits(f, g, left, right, y, n_steps);
            fputs("\"/>\n", f);
        }
        y += height + GAP;
    }
}

/* Fills in the tensors of a kind with their homes in a memory. */
static mm_status group_of(const mm_housed *housed, int n, mm_tensor_kind kind, mm_memory memory,
                          picture_group *group_out) {
    picture_group g = {.memory = memory};
    char size[32];
    int64_t bytes = 0;
    for (int i = 0; i < n; i++) {
        if (housed[i].kind != kind || housed[i].home != (mm_home_memory)memory) continue;
        bytes += housed[i].bytes;
        g.n_visits += housed[i].n_visits;
        g.n++;
    }
    g.visits = malloc(((size_t)g.n_visits + 1) * sizeof *g.visits);
    if (!g.visits) return mm_fail(MM_ERR_NOMEM, "out of memory for a picture of homes");
    for (int i = 0, row = 0, at = 0; i < n; i++) {
        const mm_housed *one = &housed[i];
        if (one->kind != kind || one->home != (mm_home_memory)memory) continue;
        for (int v = 0; v < one->n_visits; v++)
            g.visits[at++] = (picture_visit){row, one->visits[v].begin, one->visits[v].end};
        row++;
    }
    snprintf(g.label, sizeof g.label, "%s%s %s: %d of %s", mm_tensor_kind_name(kind), g.n == 1 ? "" : "s",
             mm_memory_where(memory), g.n, mm_size_format(bytes, size, sizeof size));
    *group_out = g;
    return MM_OK;
}

mm_status picture_homes_init(const mm_housed *housed, int n, picture_homes *homes_out) {
    mm_status status = MM_OK;
    *homes_out = (picture_homes){0};
    for (mm_memory m = MM_MEM_DEVICE; n > 0 && m < MM_MEMORY_COUNT; m++)
        for (int k = 0; status == MM_OK && k < MM_TENSOR_KINDS; k++) {
            picture_group *group = &homes_out->groups[homes_out->n];
            status = group_of(housed, n, (mm_tensor_kind)k, m, group);
            if (status == MM_OK && group->n > 0)
                homes_out->n++;
            else if (status == MM_OK)
                free(group->visits);
        }
    if (status != MM_OK) picture_homes_fini(homes_out);
    return status;
}

void picture_homes_fini(picture_homes *homes) {
    for (int i = 0; i < homes->n; i++) free(homes->groups[i].visits);
    *homes = (picture_homes){0};
}
