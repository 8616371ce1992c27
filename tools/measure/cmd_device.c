/* SPDX-License-Identifier: MIT */
/* mm device: shows the devices, or measures a network's facts on one. */
#include <stdio.h>
#include <string.h>

#include "mm/core/size.h"
#include "nets/io/net_file.h"
#include "tools/args/commands.h"
#include "tools/args/files.h"
#include "tools/args/json_file.h"
#include "tools/host_rates/host_rates.h"
#include "tools/measure/device_speed.h"
#include "tools/measure/disk_speed.h"
#include "tools/measure/host_facts.h"
#include "tools/measure/subject.h"
#include "tools/need/target.h"

typedef struct options {
    const char *json, *facts, *net, *policy_list;
    target target; /* target.device NULL: all devices */
    int64_t batch, iterations;
    bool help;
    arg_texts policies;
} options;

/* Whether a network's facts are wanted. */
static bool is_of_network(const options *o) { return o->facts && *o->facts; }

/* One device of the build. */
typedef struct seen {
    const mm_device_ops *ops;
    char name[16];      /* "cuda", or "cuda:1" if there are several */
    char unusable[512]; /* why the device cannot be used; "": it can */
    mm_device_description description;
    mm_memory_info memory;
    device_speed speed;
} seen;

static mm_status look(const options *o, const mm_device_ops *ops, const char *name, seen *s) {
    const mm_device_config config = {.codec_threads = (int)o->target.codec_threads};
    mm_device *device;
    *s = (seen){.ops = ops};
    snprintf(s->name, sizeof s->name, "%s", name);
    mm_status status = mm_device_create(name, &config, &device);
    if (status == MM_ERR_NOT_FOUND) {
        snprintf(s->unusable, sizeof s->unusable, "%s", mm_last_error());
        return MM_OK;
    }
    MM_TRY(status);
    mm_device_memory_info(device, &s->memory);
    status = device_speed_measure(device, &s->speed);
    mm_device_describe(device, &s->description); /* after the measurement: says how pinned memory was allocated */
    mm_device_destroy(device);
    return status;
}

/* ---------------------------------------------------------------- output */

/* "55.1 GB/s" */
static const char *rate(int64_t bytes_per_s, char buffer[32]) {
    double gb = (double)bytes_per_s * 1e-9;
    snprintf(buffer, 32, "%.*f GB/s", gb < 10 ? 2 : gb < 100 ? 1 : 0, gb);
    return buffer;
}

static void print_seen(FILE *file, const seen *s) {
    char a[32], b[32];
    if (s->unusable[0]) {
        fprintf(file, "%s\n", s->unusable);
        return;
    }
    fprintf(file, "%s: %s\n", s->name, s->description.model);
    fprintf(file, "  %-18s %s free of %s\n", "memory", mm_size_format(s->memory.free_bytes, a, sizeof a),
            mm_size_format(s->memory.total_bytes, b, sizeof b));
    fprintf(file, "  %-18s %d\n", s->ops->cpu_reaches_memory ? "processors" : "multiprocessors",
            s->description.processors);
    if (s->ops->cpu_reaches_memory) fprintf(file, "  %-18s %d, which the process may use\n", "threads", mm_host_cpus());
    fprintf(file, "  %-18s out %s, in %s\n", "link", rate(s->speed.out, a), rate(s->speed.in, b));
    fprintf(file, "  %-18s %s each\n", "  both at once", rate(s->speed.both, a));
    fprintf(file, "  %-18s %s copied\n", "within", rate(s->speed.copy, a));
    if (!s->ops->cpu_reaches_memory)
        fprintf(file, "  %-18s got at %s, %s\n", "pinned memory", rate(s->speed.pinned, a), s->description.pinned);
    for (int i = 0; i < s->speed.n_codecs; i++) {
        fprintf(file, "  %-18s encode %s", s->speed.codec[i].spec, rate(s->speed.codec[i].encode, a));
        if (s->speed.codec[i].decode > 0) fprintf(file, ", decode %s", rate(s->speed.codec[i].decode, a));
        fprintf(file, "\n");
    }
}

static json_t *seen_json(const seen *s) {
    if (s->unusable[0]) return json_pack("{s:s, s:b, s:s}", "device", s->name, "usable", 0, "reason", s->unusable);
    json_t *codecs = json_array();
    for (int i = 0; codecs && i < s->speed.n_codecs; i++)
        json_array_append_new(codecs, json_pack("{s:s, s:I, s:I}", "codec", s->speed.codec[i].spec,
                                                "encode_bytes_per_s", (json_int_t)s->speed.codec[i].encode,
                                                "decode_bytes_per_s", (json_int_t)s->speed.codec[i].decode));
    return json_pack("{s:s, s:b, s:s, s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:o}", "device", s->name, "usable",
                     1, "model", s->description.model, "processors", s->description.processors, "free_bytes",
                     (json_int_t)s->memory.free_bytes, "total_bytes", (json_int_t)s->memory.total_bytes,
                     "out_bytes_per_s", (json_int_t)s->speed.out, "in_bytes_per_s", (json_int_t)s->speed.in,
                     "both_bytes_per_s", (json_int_t)s->speed.both, "copy_bytes_per_s", (json_int_t)s->speed.copy,
                     "pinned_bytes_per_s", (json_int_t)s->speed.pinned, "pinned", s->description.pinned, "codecs",
                     codecs);
}

/* Shows one device. If the user named it (--device) and it cannot be used, that is an error. */
static mm_status show_one(const options *o, const mm_device_ops *ops, const char *name, json_t *all) {
    seen s;
    MM_TRY(look(o, ops, name, &s));
    bool usable = !o->target.device || !s.unusable[0];
    if (usable) print_seen(json_file_beside(o->json), &s);
    json_array_append_new(all, seen_json(&s));
    return usable ? MM_OK : mm_fail(MM_ERR_NOT_FOUND, "%s", s.unusable);
}

/* Shows all devices of a kind, under the kind's name if there is at most one. */
static mm_status show_kind(const options *o, const mm_device_ops *ops, json_t *all) {
    const int count = ops->count();
    char name[16];
    if (count <= 1) return show_one(o, ops, ops->name, all);
    for (int i = 0; i < count; i++) {
        snprintf(name, sizeof name, "%s:%d", ops->name, i);
        MM_TRY(show_one(o, ops, name, all));
    }
    return MM_OK;
}

static mm_status show_devices(const options *o, json_t *all) {
    const mm_device_ops *ops;
    int ordinal;
    if (o->target.device) {
        MM_TRY(mm_device_find(o->target.device, &ops, &ordinal));
        return show_one(o, ops, o->target.device, all);
    }
    for (size_t i = 0; (ops = mm_device_table(i)) != NULL; i++) MM_TRY(show_kind(o, ops, all));
    return MM_OK;
}

/* Shows all devices, or the named one. --json is written also after a failure, with what is known. */
static mm_status show(const options *o) {
    json_t *all = json_array();
    mm_status status = show_devices(o, all);
    if (o->json && json_array_size(all) > 0) {
        mm_status saved = json_file_save(o->json, all);
        return status == MM_OK ? saved : status;
    }
    json_decref(all);
    return status;
}

/* ---------------------------------------------------------------- facts */

/* Measures the disk of --disk, and tells its rates. */
static mm_status measure_disk(const options *o, disk_speed *speed_out) {
    char a[32], b[32];
    *speed_out = (disk_speed){0};
    if (o->target.disk_bytes == 0) return MM_OK;
    MM_TRY(disk_speed_measure(o->target.disk, o->target.disk_bytes, speed_out));
    fprintf(json_file_beside(o->json), "disk %s: store %s, load %s, %.0f us an access%s\n", o->target.disk,
            rate(speed_out->store_bytes_per_s, a), rate(speed_out->load_bytes_per_s, b),
            (double)speed_out->latency_ns * 1e-3,
            speed_out->direct ? "" : "; through the page cache, so these may be rates of memory");
    return MM_OK;
}

static mm_status measure_facts(const options *o, const nets_net *net) {
    collector c;
    const subject of = {net, o->batch, o->iterations, &o->target};
    disk_speed disk;
    MM_TRY(measure_disk(o, &disk));
    MM_TRY(subject_collect(&of, &o->policies, &c));
    c.facts->store_bytes_per_s = disk.store_bytes_per_s;
    c.facts->load_bytes_per_s = disk.load_bytes_per_s;
    c.facts->disk_ns = disk.latency_ns;
    const mm_status status = collector_save(&c, o->facts);
    collector_fini(&c);
    return status;
}

static mm_status save_facts(options *o) {
    nets_net *net;
    if (o->json) return mm_fail(MM_ERR_INVALID, "--json describes devices, --facts a network: give one of them");
    if (!o->target.device) o->target.device = "host";
    if (!o->net) o->net = "resnet32";
    if (!o->policy_list) o->policy_list = SUBJECT_POLICIES;
    if (o->batch == 0) o->batch = 128;
    if (o->iterations == 0) o->iterations = 10;
    MM_TRY(target_init(&o->target));
    MM_TRY(args_split("--policies", o->policy_list, &o->policies));
    MM_TRY(nets_open(o->net, &net));
    mm_status status = measure_facts(o, net);
    nets_net_destroy(net);
    if (status == MM_OK)
        printf("facts of %s, batch %lld, on %s: %s\n", o->net, (long long)o->batch, o->target.device, o->facts);
    return status;
}

/* Measures this host's own rates, for runs that are given no facts. */
static mm_status save_rates(options *o) {
    char path[PATH_MAX];
    json_t *machine;
    if (!o->target.device) o->target.device = "host";
    if (!target_is_host(o->target.device))
        return mm_fail(MM_ERR_INVALID, "--facts: without FILE this host's rates are measured; for device %s give FILE",
                       o->target.device);
    MM_TRY(target_init(&o->target));
    MM_TRY(host_rates_path(o->target.backend->threads, path)); /* before measuring */
    disk_speed disk;
    MM_TRY(measure_disk(o, &disk));
    MM_TRY(host_facts_measure(&o->target, &machine));
    if (o->target.disk_bytes > 0)
        json_object_update_new(machine, json_pack("{sI sI}", "store_bytes_per_s", (json_int_t)disk.store_bytes_per_s,
                                                  "load_bytes_per_s", (json_int_t)disk.load_bytes_per_s));
    mm_status status = host_rates_save(&o->target, machine, path);
    if (status == MM_OK)
        fprintf(json_file_beside(o->json), "rates of this host, %d threads: %s\n", o->target.backend->threads, path);
    if (status == MM_OK && o->json) return json_file_save(o->json, machine);
    json_decref(machine);
    return status;
}

static mm_status check_files(const options *o) {
    const named_file files[] = {{"--json", o->json, FILE_WRITTEN},
                                {"--facts", is_of_network(o) ? o->facts : NULL, FILE_WRITTEN},
                                {"--net", files_net(o->net), FILE_READ},
                                {"--algorithms", o->target.algorithms, FILE_KEPT}};
    return files_check(files, sizeof files / sizeof *files);
}

static const char help_text[] =
    "Lists the devices of this build: memory, and how fast the link to host memory, copies and codecs are, which\n"
    "takes about a second each; or why a device cannot be used. With --facts instead, trains a network on the device\n"
    "for a few iterations under each policy, and writes the times of its steps, codecs and link to a file, with\n"
    "which 'mm plan --facts' plans for that device elsewhere. On GPUs it also measures how much these slow each\n"
    "other.\n"
    "\n"
    "--facts without FILE measures this host's own rates in some ten seconds, on an otherwise idle machine, and keeps\n"
    "them in $XDG_CACHE_HOME/mm (~/.cache/mm), as a machine file. 'mm train' and 'mm bench' plan by them from then\n"
    "on; they hold for this CPU, number of threads, version of oneDNN and of mm. With --disk, a disk's rates\n"
    "are measured too, in both cases.\n"
    "\n"
    "  mm device --device cuda --facts resnet50.json --net resnet50 --batch 128";

/* Options that only training for a network's facts reads are refused without --facts FILE; of them, this host's rates
 * depend on --threads. */
static mm_status check_options_of_figures(const options *o, int argc, char **argv, const arg *table) {
    static const char *const USED[] = {"--device", "--codec-threads", "--json", "--facts", "--threads", "--disk"};
    const size_t n = sizeof USED / sizeof *USED - (o->facts ? 0 : 3);
    for (const arg *a = table; a->kind != ARG_END; a++) {
        bool used = false;
        for (size_t i = 0; i < n; i++) used = used || strcmp(a->name, USED[i]) == 0;
        if (!used && args_given(argc, argv, a->name)) return mm_fail(MM_ERR_INVALID, "%s: needs --facts FILE", a->name);
    }
    return MM_OK;
}

int cmd_device(int argc, char **argv) {
    options o = {.target = {.precision = "fp32", .fuse = "on"}};
    const arg table[] = {
        {"--device", "host|cuda[:N]", "show only this device (all)", ARG_TEXT, &o.target.device, 0, 0},
        TARGET_HOW_ARGS(&o.target),
        TARGET_CODEC_THREADS_ARG(&o.target),
        TARGET_DISK_ARG(&o.target),
        TARGET_OPTIMIZER_ARG(&o.target),
        {"--json", "FILE", "write the figures as an array; -: to standard output", ARG_TEXT, &o.json, 0, 0},
        {"--facts", "[FILE]", "write a network's facts on the device (host); without FILE: measure this host's rates",
         ARG_MAYBE, &o.facts, 0, 0},
        {"--net", "NET", "with --facts: network (resnet32)", ARG_TEXT, &o.net, 0, 0},
        {"--batch", "N", "with --facts: batch size (128)", ARG_COUNT, &o.batch, 1, 1 << 20},
        {"--policies", "POLICY,..", "with --facts: policies to run (" SUBJECT_POLICIES ")", ARG_TEXT, &o.policy_list, 0,
         0},
        {"--iterations", "N", "with --facts: iterations of each policy; the first does not count (10)", ARG_COUNT,
         &o.iterations, 2, 1e6},
        {0},
    };
    mm_status status = args_parse(argc, argv, table, "mm device [OPTIONS]", help_text, &o.help);
    if (status == MM_OK && o.help) return EXIT_OK;
    if (status == MM_OK && o.target.device) status = target_check_device(o.target.device);
    if (status == MM_OK) status = check_files(&o);
    if (status == MM_OK && !is_of_network(&o)) status = check_options_of_figures(&o, argc, argv, table);
    if (status == MM_OK) status = !o.facts ? show(&o) : is_of_network(&o) ? save_facts(&o) : save_rates(&o);
    target_fini(&o.target);
    args_texts_fini(&o.policies);
    return status == MM_OK ? EXIT_OK : command_failed("device", status);
}
