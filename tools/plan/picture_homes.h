/* SPDX-License-Identifier: MIT */
/* Draws where persistent tensors have their homes, below a plan's memory and over the same steps. */
#ifndef TOOLS_PLAN_PICTURE_HOMES_H
#define TOOLS_PLAN_PICTURE_HOMES_H

#include "tools/plan/picture.h"

/* Height of the drawing, in pixels; 0: there is nothing to draw. */
int picture_homes_height(const picture_homes *homes);

/* Draws from x `left` to `right`, and from y on. device: the colour of what is on the device. n_steps: of the plot
 * above, > 0. */
void picture_homes_draw(FILE *file, const picture_homes *homes, int left, int right, double y, int n_steps,
                        const char *device);

#endif
