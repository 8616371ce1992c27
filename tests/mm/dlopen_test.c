/* libmm.so as those find it who do not link with it: it opens at run time, shows mm.h's functions and nothing else, and
 * works. */
#include <dlfcn.h>
#include <elf.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "mm/mm.h"

static const char library_path[] = "mm/libmm.so";

#define FUNCTIONS(f)                                                                                                   \
    f(status_name) f(last_error) f(dtype_bytes) f(dtype_name) f(layer_kind_properties) f(graph_set_properties)         \
        f(graph_set_weight) f(graph_add_part) f(tensor_kind_name) f(layer_kind_name) f(phase_name) f(graph_create)     \
            f(graph_destroy) f(graph_add_tensor) f(graph_add_layer) f(graph_add_step) f(graph_allow_inplace) f(        \
                graph_allow_alias) f(graph_allow_code) f(graph_allow_given) f(graph_allow_workspace) f(graph_freeze)   \
                f(graph_find_tensor) f(manager_create_sized) f(facts_load) f(facts_destroy) f(facts_save) f(           \
                    manager_destroy) f(manager_prepare) f(manager_forget) f(policy_set) f(policy_now) f(recompute_set) \
                    f(budget_set) f(external_set) f(persistent_add) f(persistent_remove) f(persistent_data)            \
                        f(persistent_get) f(persistent_set) f(values_set) f(iteration_number_set) f(compute_stream) f( \
                            stream_handle) f(iteration_begin) f(iteration_end) f(iteration_end_async) f(manager_sync)  \
                            f(replay_state) f(record_begin) f(record_end) f(iteration_replay) f(sampling_guards)       \
                                f(rehearsal_begin) f(sampling_tell) f(sampling_age) f(sampling_age_set)                \
                                    f(iteration_abort) f(layer_begin) f(layer_end) f(tensor_data) f(tensor_form)       \
                                        f(tensor_coded) f(tensor_exact) f(tensor_given) f(workspace_data)              \
                                            f(workspace_bytes) f(current_step) f(manager_device_bytes) f(stats_get)    \
                                                f(stats_get_sized) f(touched_get) f(observe) f(trace_start)            \
                                                    f(trace_stop) f(policy_list) f(codec_list) f(device_list)          \
                                                        f(graph_share) f(graph_share_as) f(gradient_set) f(version)    \
                                                            f(stash_create_sized) f(stash_destroy) f(stash_put)        \
                                                                f(stash_get) f(stash_give_back) f(stash_drop)          \
                                                                    f(stash_stats_get_sized) f(stash_mark)             \
                                                                        f(stash_settle) f(stash_refusal_get)           \
                                                                            f(stash_touched_get) f(stash_report)       \
                                                                                f(stash_plan_segment)

/* mm.h's functions by their types, to be found in the library. */
static struct api {
#define POINTER(name) __typeof__(mm_##name) *name;
    FUNCTIONS(POINTER)
#undef POINTER
} mm;

static const char *const names[] = {
#define NAME(name) "mm_" #name,
    FUNCTIONS(NAME)
#undef NAME
};
enum { NAMES = sizeof names / sizeof *names };

static void *open_library(void) {
    void *library = dlopen(library_path, RTLD_NOW | RTLD_LOCAL);
    if (!library) fail_msg("%s", dlerror());
#define FIND(name)                                                                                                     \
    *(void **)&mm.name = dlsym(library, "mm_" #name);                                                                  \
    if (!mm.name) fail_msg("%s", dlerror());
    FUNCTIONS(FIND)
#undef FIND
    return library;
}

static void a_layer_runs_in_a_library_opened_at_run_time(void **state) {
    (void)state;
    void *library = open_library();
    mm_graph *graph;
    mm_manager *m;
    mm_layer layer;
    mm_tensor x, y;
    mm_stats stats;
    mm_tensor_desc xd = {.name = "x", .kind = MM_FEATURE_MAP, .rank = 2, .dims = {16, 64}};
    mm_tensor_desc yd = {.name = "y", .kind = MM_STATE, .ownership = MM_PERSISTENT, .rank = 1, .dims = {1}};
    assert_int_equal(mm.graph_create("dlopen", &graph), MM_OK);
    assert_int_equal(mm.graph_add_tensor(graph, &xd, &x), MM_OK);
    assert_int_equal(mm.graph_add_tensor(graph, &yd, &y), MM_OK);
    assert_int_equal(mm.graph_add_layer(graph, "conv", MM_LAYER_CONV, &layer), MM_OK);
    mm_use forward[] = {{x, MM_WRITE, MM_FORM_VALUE}}, backward[] = {{x, MM_READ, MM_FORM_VALUE}, {y, MM_MODIFY, 0}};
    assert_int_equal(mm.graph_add_step(graph, layer, MM_FORWARD, forward, 1, 0), MM_OK);
    assert_int_equal(mm.graph_add_step(graph, layer, MM_BACKWARD, backward, 2, 0), MM_OK);
    assert_int_equal(mm.graph_freeze(graph), MM_OK);
    /* The heap's jemalloc too. */
    mm_options options = {.device_bytes = 1 << 20,
                          .policy = "freelunch:codec=raw,buffers=naive,workspace=naive,when=always"};
    if (mm.manager_create_sized(&options, sizeof options, &m) != MM_OK) fail_msg("%s", mm.last_error());
    for (int i = 0; i < 2; i++) {
        if (mm.iteration_begin(m, graph) != MM_OK) fail_msg("%s", mm.last_error());
        assert_int_equal(mm.layer_begin(m, layer, MM_FORWARD, NULL), MM_OK);
        float *data = mm.tensor_data(m, x);
        for (int e = 0; e < 16 * 64; e++) data[e] = (float)e;
        assert_int_equal(mm.layer_end(m, layer, MM_FORWARD), MM_OK);
        assert_int_equal(mm.layer_begin(m, layer, MM_BACKWARD, NULL), MM_OK);
        *(float *)mm.tensor_data(m, y) += ((float *)mm.tensor_data(m, x))[1023];
        assert_int_equal(mm.layer_end(m, layer, MM_BACKWARD), MM_OK);
        if (mm.iteration_end(m) != MM_OK) fail_msg("%s", mm.last_error());
    }
    assert_true(*(float *)mm.persistent_data(m, "y", NULL) == 2046);
    mm.stats_get(m, &stats);
    assert_int_equal(stats.encodes, 2);
    assert_int_equal(stats.decodes, 2);
    assert_true(stats.unplanned_allocs > 0);
    mm.manager_destroy(m);
    mm.graph_destroy(graph);
    assert_int_equal(dlclose(library), 0);
}

static char *read_file(const char *path, long *bytes_out) {
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    *bytes_out = ftell(file);
    rewind(file);
    char *data = malloc((size_t)*bytes_out);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, (size_t)*bytes_out, file), *bytes_out);
    fclose(file);
    return data;
}

static bool is_public(const char *name) {
    for (int i = 0; i < NAMES; i++)
        if (strcmp(names[i], name) == 0) return true;
    return false;
}

static void the_library_shows_the_functions_of_the_header_and_no_other_symbol(void **state) {
    (void)state;
    long bytes;
    int shown = 0;
    char *file = read_file(library_path, &bytes);
    const Elf64_Ehdr *header = (const Elf64_Ehdr *)file;
    assert_memory_equal(header->e_ident, ELFMAG, SELFMAG);
    assert_int_equal(header->e_ident[EI_CLASS], ELFCLASS64);
    const Elf64_Shdr *sections = (const Elf64_Shdr *)(file + header->e_shoff);
    for (int s = 0; s < header->e_shnum; s++) {
        if (sections[s].sh_type != SHT_DYNSYM) continue;
        const Elf64_Sym *symbols = (const Elf64_Sym *)(file + sections[s].sh_offset);
        const char *strings = file + sections[sections[s].sh_link].sh_offset;
        for (size_t i = 1; i < sections[s].sh_size / sizeof *symbols; i++) {
            if (symbols[i].st_shndx == SHN_UNDEF || ELF64_ST_BIND(symbols[i].st_info) == STB_LOCAL) continue;
            if (!is_public(strings + symbols[i].st_name)) fail_msg("%s is shown", strings + symbols[i].st_name);
            shown++;
        }
    }
    assert_int_equal(shown, NAMES);
    free(file);
}

static void programs_linked_with_the_library_look_for_its_version(void **state) {
    (void)state;
    long bytes;
    char *file = read_file(library_path, &bytes);
    const Elf64_Ehdr *header = (const Elf64_Ehdr *)file;
    const Elf64_Shdr *sections = (const Elf64_Shdr *)(file + header->e_shoff);
    const char *soname = NULL;
    for (int s = 0; s < header->e_shnum; s++) {
        if (sections[s].sh_type != SHT_DYNAMIC) continue;
        const Elf64_Dyn *entries = (const Elf64_Dyn *)(file + sections[s].sh_offset);
        const char *strings = file + sections[sections[s].sh_link].sh_offset;
        for (size_t i = 0; i < sections[s].sh_size / sizeof *entries; i++)
            if (entries[i].d_tag == DT_SONAME) soname = strings + entries[i].d_un.d_val;
    }
    assert_non_null(soname);
    assert_string_equal(soname, "libmm.so.1");
    free(file);
}

/* The emulation of CUDA keeps kernels' shared memory by thread: hundreds of KiB. A library that is opened at run time
 * gets so much only if it was set aside when the program began, so it begins once more. */
static void set_aside_thread_local_memory(char **argv) {
    static const char setting[] = "glibc.rtld.optional_static_tls=1048576";
    const char *now = getenv("GLIBC_TUNABLES");
    if (now && strcmp(now, setting) == 0) return;
    if (setenv("GLIBC_TUNABLES", setting, 1) == 0) execv("/proc/self/exe", argv);
}

int main(int argc, char **argv) {
    (void)argc;
    set_aside_thread_local_memory(argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_layer_runs_in_a_library_opened_at_run_time),
        cmocka_unit_test(the_library_shows_the_functions_of_the_header_and_no_other_symbol),
        cmocka_unit_test(programs_linked_with_the_library_look_for_its_version),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
