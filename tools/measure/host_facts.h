/* SPDX-License-Identifier: MIT */
/* Measures this host's rates, as a machine file (tools/facts/machine.h).
 *
 * Three small networks train under a few policies (subject.h). From the times of their steps follow the rates that give
 * these times in the sum: of products, by kind; of memory; and how many passes each other kind of layer takes. Rates of
 * copies are the means of the networks' fits (collect.h). Codecs are measured alone (device_speed.h). How much steps,
 * codecs and copies, which share the CPUs, slow each other is measured in pairs (device_pairs.h); medians of five
 * rounds count. */
#ifndef TOOLS_MEASURE_HOST_FACTS_H
#define TOOLS_MEASURE_HOST_FACTS_H

#include <jansson.h>

#include "tools/need/target.h"

/* Takes some ten seconds, and some hundred MB. target: initialised, of the host device. Errors of session_init;
 * MM_ERR_NOMEM. The caller releases the JSON. */
MM_CHECKED mm_status host_facts_measure(const target *target, json_t **machine_out);

#endif
