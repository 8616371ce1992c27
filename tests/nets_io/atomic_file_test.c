/* SPDX-License-Identifier: MIT */
/* Files that get their name only when they are complete. */
#include "mm/core/atomic_file.h"
#include "tests/core/alloc_fault.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/nets_io/scratch.h"

typedef scratch_folder folder;

static void expect_contents(const char *path, const char *text) {
    size_t n_bytes;
    uint8_t *bytes = scratch_read(path, &n_bytes);
    assert_int_equal(n_bytes, strlen(text));
    assert_memory_equal(bytes, text, n_bytes);
    free(bytes);
}

static mm_status print_text(const void *ctx, FILE *stream) {
    fputs(ctx, stream);
    return MM_OK;
}

static mm_status print_half(const void *ctx, FILE *stream) {
    fputs("half", stream);
    return mm_fail(MM_ERR_FORMAT, "%s", (const char *)ctx);
}

static void file_appears_under_its_name_only_when_complete(void **state) {
    const folder *f = *state;
    mm_atomic_file file;
    scratch_write(f->file, "old", 3);
    for (int commit = 0; commit < 2; commit++) {
        assert_int_equal(mm_atomic_file_create(f->file, &file), MM_OK);
        assert_int_equal(mm_atomic_file_write(&file, "newer", 5), MM_OK);
        expect_contents(f->file, "old");
        if (commit)
            assert_int_equal(mm_atomic_file_commit(&file), MM_OK);
        else
            mm_atomic_file_abandon(&file);
        assert_int_equal(scratch_count(f->path), 1);
        expect_contents(f->file, commit ? "newer" : "old");
    }
}

static void contents_are_saved_or_printed_as_a_whole(void **state) {
    const folder *f = *state;
    assert_int_equal(mm_atomic_file_save(f->file, "saved", 5), MM_OK);
    expect_contents(f->file, "saved");
    assert_int_equal(mm_atomic_file_print(f->file, print_text, "printed"), MM_OK);
    expect_contents(f->file, "printed");
    assert_int_equal(mm_atomic_file_print(f->file, print_half, "the writer's word"), MM_ERR_FORMAT);
    assert_string_equal(mm_last_error(), "the writer's word");
    expect_contents(f->file, "printed");
    assert_int_equal(scratch_count(f->path), 1);
}

static void failed_write_keeps_the_old_file_and_leaves_no_other(void **state) {
    const folder *f = *state;
    scratch_write(f->file, "old", 3);
    /* A file descriptor that cannot be written stands for a full disk. */
    mm_atomic_file file;
    assert_int_equal(mm_atomic_file_create(f->file, &file), MM_OK);
    FILE *full = fopen("/dev/full", "wb");
    assert_non_null(full);
    assert_true(dup2(fileno(full), file.fd) >= 0);
    fclose(full);
    assert_int_equal(mm_atomic_file_write(&file, "new", 3), MM_ERR_IO);
    assert_non_null(strstr(mm_last_error(), f->file));
    mm_atomic_file_abandon(&file);
    assert_int_equal(scratch_count(f->path), 1);
    expect_contents(f->file, "old");
}

static void commit_that_cannot_rename_leaves_nothing(void **state) {
    const folder *f = *state;
    mm_atomic_file file;
    assert_int_equal(mm_atomic_file_create(f->file, &file), MM_OK);
    /* Meanwhile a folder has taken the name. */
    assert_int_equal(mkdir(f->file, 0777), 0);
    assert_int_equal(mm_atomic_file_commit(&file), MM_ERR_IO);
    assert_int_equal(scratch_count(f->path), 1);
}

static void writing_through_a_link_keeps_the_link_and_makes_its_file(void **state) {
    const folder *f = *state;
    char first[PATH_MAX], second[PATH_MAX];
    struct stat info;
    assert_int_equal(symlink("file", scratch_join(f->path, "first", first)), 0);
    assert_int_equal(symlink(first, scratch_join(f->path, "second", second)), 0);
    for (int there = 0; there < 2; there++) {
        const char *text = there ? "again" : "new";
        assert_int_equal(mm_atomic_file_save(second, text, strlen(text)), MM_OK);
        assert_int_equal(lstat(first, &info), 0);
        assert_true(S_ISLNK(info.st_mode));
        assert_int_equal(lstat(second, &info), 0);
        assert_true(S_ISLNK(info.st_mode));
        assert_int_equal(lstat(f->file, &info), 0);
        assert_true(S_ISREG(info.st_mode));
        expect_contents(f->file, text);
        assert_int_equal(scratch_count(f->path), 3);
    }
    char circle[PATH_MAX];
    assert_int_equal(symlink("circle", scratch_join(f->path, "circle", circle)), 0);
    assert_int_equal(mm_atomic_file_save(circle, "new", 3), MM_ERR_IO);
}

/* ---------------------------------------------------------------- pipes and devices */

/* A pipe is written in place, and checking it opens nothing: its reader would see the end. */
static void a_pipe_gets_the_bytes_and_stays(void **state) {
    const folder *f = *state;
    char got[8] = "";
    struct stat info;
    assert_int_equal(mkfifo(f->file, 0666), 0);
    int reader = open(f->file, O_RDONLY | O_NONBLOCK);
    assert_true(reader >= 0);
    assert_true(mm_atomic_file_is_stream(f->file));
    assert_int_equal(mm_atomic_file_check(f->file), MM_OK);
    assert_int_equal(mm_atomic_file_save(f->file, "bytes", 5), MM_OK);
    assert_int_equal(read(reader, got, sizeof got), 5);
    assert_string_equal(got, "bytes");
    close(reader);
    assert_int_equal(stat(f->file, &info), 0);
    assert_true(S_ISFIFO(info.st_mode));
    assert_int_equal(scratch_count(f->path), 1);
}

static void a_device_is_written_and_tells_its_failures(void **state) {
    (void)state;
    assert_int_equal(mm_atomic_file_check("/dev/null"), MM_OK);
    assert_int_equal(mm_atomic_file_save("/dev/null", "bytes", 5), MM_OK);
    assert_int_equal(mm_atomic_file_print("/dev/null", print_text, "bytes"), MM_OK);
    assert_int_equal(mm_atomic_file_save("/dev/full", "bytes", 5), MM_ERR_IO);
    assert_non_null(strstr(mm_last_error(), "/dev/full: writing failed: No space left"));
}

/* A descriptor keeps its place in its file: what is written goes behind what was there. */
static void a_descriptor_is_written_where_it_stands(void **state) {
    const folder *f = *state;
    char name[32];
    FILE *log = fopen(f->file, "w");
    assert_non_null(log);
    fputs("before ", log);
    fflush(log);
    static const char *const folders[] = {"/dev/fd/", "/proc/self/fd/"};
    for (int i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "%s%d", folders[i], fileno(log));
        assert_int_equal(mm_atomic_file_check(name), MM_OK);
        assert_int_equal(mm_atomic_file_save(name, "new ", 4), MM_OK);
    }
    const int closed = fileno(log);
    fputs("after", log);
    fclose(log);
    expect_contents(f->file, "before new new after");
    snprintf(name, sizeof name, "/dev/fd/%d", closed);
    assert_int_equal(mm_atomic_file_check(name), MM_ERR_IO);
    assert_int_equal(mm_atomic_file_save(name, "new", 3), MM_ERR_IO);
    static const char *const no_descriptors[] = {"/dev/fd/", "/dev/fd/1x", "/dev/fd/12345678", "dev/stdout"};
    for (size_t i = 0; i < sizeof no_descriptors / sizeof *no_descriptors; i++)
        assert_false(mm_atomic_file_is_stream(no_descriptors[i]));
    assert_int_equal(scratch_count(f->path), 1);
}

/* Every allocation fails once: the link stays, and the file that it leads to is made, or not. */
static void a_link_to_a_new_file_stays_where_memory_runs_out(void **state) {
    const folder *f = *state;
    char link[PATH_MAX];
    struct stat info;
    assert_int_equal(symlink("file", scratch_join(f->path, "link", link)), 0);
    bool happened = true;
    for (int nth = 1; happened; nth++) {
        alloc_fault_set(nth);
        const mm_status status = mm_atomic_file_save(link, "new", 3);
        happened = alloc_fault_happened();
        alloc_fault_set(0);
        assert_true(status == MM_OK || (happened && status == MM_ERR_NOMEM));
        assert_int_equal(lstat(link, &info), 0);
        assert_true(S_ISLNK(info.st_mode));
        assert_int_equal(scratch_count(f->path), status == MM_OK ? 2 : 1);
        if (status == MM_OK) expect_contents(f->file, "new");
        unlink(f->file);
    }
}

/* ---------------------------------------------------------------- modes */

static mode_t mode_of(const char *path) {
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    return info.st_mode & 0777;
}

static void mode_is_that_of_a_new_file(void **state) {
    const folder *f = *state;
    const mode_t before = umask(077), masks[] = {077, 022, 002, 027};
    for (size_t i = 0; i < sizeof masks / sizeof *masks; i++) {
        umask(masks[i]);
        assert_int_equal(mm_atomic_file_save(f->file, "x", 1), MM_OK);
        assert_int_equal(mode_of(f->file), 0666 & ~masks[i]);
        assert_int_equal(unlink(f->file), 0);
        assert_int_equal(mm_atomic_file_print(f->file, print_text, "x"), MM_OK);
        assert_int_equal(mode_of(f->file), 0666 & ~masks[i]);
    }
    umask(before);
}

/* A killed writer may have left a file that all can read; the next writer's must have its own mode. */
static void mode_of_what_was_left_is_not_kept(void **state) {
    const folder *f = *state;
    char left[PATH_MAX];
    scratch_write(scratch_join(f->path, "file.0.tmp", left), "left", 4);
    assert_int_equal(chmod(left, 0666), 0);
    const mode_t before = umask(077);
    assert_int_equal(mm_atomic_file_save(f->file, "new", 3), MM_OK);
    umask(before);
    assert_int_equal(mode_of(f->file), 0600);
    expect_contents(f->file, "new");
    assert_int_equal(scratch_count(f->path), 1);
}

/* ---------------------------------------------------------------- writers that are killed, and several at once */

static void killed_writers_leave_one_file_that_the_next_removes(void **state) {
    const folder *f = *state;
    for (int i = 0; i < 3; i++) {
        pid_t child = fork();
        if (child == 0) {
            mm_atomic_file file;
            bool written = mm_atomic_file_create(f->file, &file) == MM_OK &&
                           mm_atomic_file_write(&file, "a longer text, half done", 24) == MM_OK;
            raise(written ? SIGKILL : SIGABRT);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        assert_int_equal(scratch_count(f->path), 1);
    }
    assert_int_equal(mm_atomic_file_save(f->file, "new", 3), MM_OK);
    assert_int_equal(scratch_count(f->path), 1);
    expect_contents(f->file, "new");
}

static void two_writers_of_one_file_do_not_meet(void **state) {
    const folder *f = *state;
    mm_atomic_file first, second;
    assert_int_equal(mm_atomic_file_create(f->file, &first), MM_OK);
    assert_int_equal(mm_atomic_file_write(&first, "first", 5), MM_OK);
    assert_int_equal(mm_atomic_file_create(f->file, &second), MM_OK);
    assert_int_equal(mm_atomic_file_write(&second, "sec", 3), MM_OK);
    assert_int_equal(mm_atomic_file_commit(&first), MM_OK);
    expect_contents(f->file, "first");
    assert_int_equal(mm_atomic_file_write(&second, "ond", 3), MM_OK);
    assert_int_equal(mm_atomic_file_commit(&second), MM_OK);
    expect_contents(f->file, "second");
    assert_int_equal(scratch_count(f->path), 1);
}

static void many_writers_at_once_leave_one_whole_file(void **state) {
    enum { WRITERS = 4, SAVES = 50 };
    const folder *f = *state;
    pid_t children[WRITERS];
    for (int i = 0; i < WRITERS; i++)
        if ((children[i] = fork()) == 0) {
            const char text[] = {(char)('a' + i), (char)('a' + i), '\0'};
            mm_status status = MM_OK;
            for (int n = 0; n < SAVES && status == MM_OK; n++) status = mm_atomic_file_save(f->file, text, 2);
            _exit(status == MM_OK ? 0 : 1);
        }
    for (int i = 0; i < WRITERS; i++) {
        int status;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    size_t n_bytes;
    uint8_t *bytes = scratch_read(f->file, &n_bytes);
    assert_int_equal(n_bytes, 2);
    assert_int_equal(bytes[0], bytes[1]);
    free(bytes);
    assert_int_equal(scratch_count(f->path), 1);
}

/* The temporary file's name may be taken: by a hard link, a symbolic link, a pipe. None of them is written to. */
static void names_that_lead_elsewhere_are_left_alone(void **state) {
    const folder *f = *state;
    char other[PATH_MAX], temporary[PATH_MAX + 16];
    scratch_write(scratch_join(f->path, "other", other), "old", 3);
    snprintf(temporary, sizeof temporary, "%s.0.tmp", f->file);
    assert_int_equal(link(other, temporary), 0);
    snprintf(temporary, sizeof temporary, "%s.1.tmp", f->file);
    assert_int_equal(symlink(other, temporary), 0);
    snprintf(temporary, sizeof temporary, "%s.2.tmp", f->file);
    assert_int_equal(mkfifo(temporary, 0666), 0);
    assert_int_equal(mm_atomic_file_save(f->file, "new", 3), MM_OK);
    expect_contents(other, "old");
    assert_int_equal(scratch_count(f->path), 5);
}

/* Replaces the C library's fsync. Counts calls made before the watched name exists. */
static const char *watched;
static int synced_before_rename;

int fsync(int fd) {
    struct stat info;
    if (watched && stat(watched, &info) != 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode)) synced_before_rename++;
    return (int)syscall(SYS_fsync, fd);
}

static void file_is_on_disk_before_it_has_its_name(void **state) {
    const folder *f = *state;
    watched = f->file;
    for (int print = 0; print < 2; print++) {
        synced_before_rename = 0;
        mm_status status =
            print ? mm_atomic_file_print(f->file, print_text, "new") : mm_atomic_file_save(f->file, "new", 3);
        assert_int_equal(status, MM_OK);
        assert_int_equal(synced_before_rename, 1);
        assert_int_equal(unlink(f->file), 0);
    }
    watched = NULL;
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, scratch_setup, scratch_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(file_appears_under_its_name_only_when_complete),
        CASE(contents_are_saved_or_printed_as_a_whole),
        CASE(failed_write_keeps_the_old_file_and_leaves_no_other),
        CASE(commit_that_cannot_rename_leaves_nothing),
        CASE(a_pipe_gets_the_bytes_and_stays),
        CASE(a_device_is_written_and_tells_its_failures),
        CASE(a_descriptor_is_written_where_it_stands),
        CASE(writing_through_a_link_keeps_the_link_and_makes_its_file),
        CASE(a_link_to_a_new_file_stays_where_memory_runs_out),
        CASE(mode_is_that_of_a_new_file),
        CASE(mode_of_what_was_left_is_not_kept),
        CASE(killed_writers_leave_one_file_that_the_next_removes),
        CASE(two_writers_of_one_file_do_not_meet),
        CASE(many_writers_at_once_leave_one_whole_file),
        CASE(names_that_lead_elsewhere_are_left_alone),
        CASE(file_is_on_disk_before_it_has_its_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
