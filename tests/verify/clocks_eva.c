/* SPDX-License-Identifier: MIT */
/* For the analyser Frama-C (clocks_eva_test.sh): all programs of PIECES pieces on the streams below, with all their
 * waits, through the check's vector clocks. Choices are made by steps, so that the analyser follows each by itself;
 * arrays are not initialised beyond what a program has, so that it reports each read of what is not there. */
#include "mm/core/check/plan_check.h"

#ifndef PIECES
#define PIECES 4
#endif

/* The analyser's own: any number from min to max. */
/*@ assigns \result \from min, max; ensures min <= \result <= max; */
extern int Frama_C_interval(int min, int max);

/* The first stream, one in the middle, and the last. */
static const int STREAMS[] = {0, MM_STREAM_COUNT / 2, MM_STREAM_COUNT - 1};
enum { CHOICES = sizeof STREAMS / sizeof *STREAMS };

/* Gives x each value from low to high, in a state of its own. No function, because states join where one returns. */
#define ANY(x, low, high)                                                                                              \
    x = (low);                                                                                                         \
    while (x < (high) && Frama_C_interval(0, 1)) x++

int main(void) {
    mm_piece pieces[PIECES];
    mm_node nodes[PIECES];
    int32_t at[MM_STREAM_COUNT][PIECES], numbers[PIECES], clocks[PIECES][MM_STREAM_COUNT];
    mm_plan plan = {.nodes = nodes, .n_nodes = PIECES};
    mm_program program = {.plan = &plan, .pieces = pieces, .n = PIECES, .first = numbers, .last = numbers};
    mm_check check = {.plan = &plan, .program = &program, .clocks = clocks};
    for (int s = 0; s < MM_STREAM_COUNT; s++) check.node_at[s] = program.at[s] = at[s];
    for (int i = 0; i < PIECES; i++) { /* piece i is all of node i */
        int chosen;
        ANY(chosen, 0, CHOICES - 1);
        const int stream = STREAMS[chosen];
        pieces[i].node = i;
        pieces[i].stream = nodes[i].stream = (mm_stream_id)stream;
        pieces[i].seq = nodes[i].seq = numbers[i] = program.count[stream];
        for (int s = 0; s < MM_STREAM_COUNT; s++) pieces[i].wait[s] = -1;
        for (int c = 0; c < CHOICES; c++) {
            if (STREAMS[c] == stream) continue;
            ANY(chosen, -1, program.count[STREAMS[c]] - 1);
            pieces[i].wait[STREAMS[c]] = chosen;
        }
        at[stream][program.count[stream]++] = i;
    }
    mm_program_clocks(&program, clocks);
    int ended = 0;
    for (int b = 0; b < PIECES; b++)
        for (int a = 0; a < b; a++) ended += mm_check_ended(&check, (int)nodes[a].stream, nodes[a].seq, b);
    for (int i = 0; i < PIECES; i++)
        for (int s = 0; s < MM_STREAM_COUNT; s++) {
            /*@ check \initialized(&clocks[i][s]); */
            /*@ check -1 <= clocks[i][s] < program.count[s]; */
        }
    return ended;
}
