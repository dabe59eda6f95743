/* Processes of MX endpoints that fork, and that outlive their daemon.
     session fork NIC              forks while an endpoint of its own NIC is open
     session echo                  returns each message to its sender, until it is killed
     session cross NIC FILE COUNT  exchanges messages with an echo; after FILE exists, connects
                                   again after each failure, and ends after COUNT more messages
     session tuned NIC FILE COUNT  the same as an ordinary user; registrations of its memory are
                                   kept, and end with each mapping of the memory
     session plain NIC             exchanges messages with an echo as an ordinary user to whom the
                                   kernel refuses userfaultfd(2): no registration is kept
   A message that neither completes nor fails within 60 s is an error. */
#include <grp.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "check.h"
#include "mx_io.h"

#define KEY 77
#define ECHO 5
#define PATIENCE_MS 60000
/* An ordinary user, with the limit of locked memory that Linux gives. */
#define USER 1000
#define LOCKED_MAX (8 << 20)
#define COUNTERS_MAX 64
#define LONGEST 100000
/* Messages from one mapping of the memory: four long ones. */
#define MAPPED_MESSAGES 12

/* Returns how a request ended; never waits without a limit. */
static mx_status_code_t how(mx_endpoint_t endpoint, mx_request_t request, uint32_t *value) {
    mx_status_t status;
    uint32_t result = 0;
    OK(mx_wait(endpoint, &request, PATIENCE_MS, &status, &result));
    CHECK(result == 1);
    if (value) *value = status.xfer_length;
    return status.code;
}

static mx_request_t synchronous(mx_endpoint_t endpoint, void *from, uint32_t length,
                                mx_endpoint_addr_t to, uint64_t info) {
    mx_segment_t segment = {from, length};
    mx_request_t request;
    OK(mx_issend(endpoint, &segment, 1, to, info, NULL, &request));
    return request;
}

static void exchange(mx_endpoint_t endpoint, mx_endpoint_addr_t to, uint32_t number) {
    uint32_t in = 0;
    mx_request_t receive = receiving(endpoint, &in, sizeof in, 1, MX_MATCH_MASK_NONE);
    CHECK(how(endpoint, synchronous(endpoint, &number, sizeof number, to, 1), NULL) == 0);
    CHECK(how(endpoint, receive, NULL) == 0 && in == number);
}

static int forks(uint64_t nic) {
    mx_endpoint_t endpoint;
    OK(mx_open_endpoint(0, 1, KEY, NULL, 0, &endpoint));
    mx_endpoint_addr_t own = reach(endpoint, nic, 1, KEY);
    for (uint32_t number = 1; number <= 3; number++) {
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            mx_status_t status;
            mx_request_t request;
            uint32_t result;
            mx_segment_t segment = {&number, sizeof number};
            IS(mx_test_any(endpoint, 0, 0, &status, &result), MX_BAD_ENDPOINT);
            IS(mx_isend(endpoint, &segment, 1, own, 0, NULL, &request), MX_BAD_ENDPOINT);
            IS(mx_close_endpoint(endpoint), MX_BAD_ENDPOINT);
            _exit(0);
        }
        /* While the child runs, and after its end. */
        exchange(endpoint, own, 2 * number);
        int status;
        CHECK(waitpid(pid, &status, 0) == pid && status == 0);
        exchange(endpoint, own, 2 * number + 1);
    }
    OK(mx_close_endpoint(endpoint));
    printf("passed\n");
    return 0;
}

static void leave_root(void) {
    struct rlimit limit = {LOCKED_MAX, LOCKED_MAX};
    CHECK(setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
    CHECK(setgroups(0, NULL) == 0 && setgid(USER) == 0 && setuid(USER) == 0);
    CHECK(setuid(0) != 0);
}

/* Has userfaultfd(2) fail, as in a container. */
static void forbid_watches(void) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_userfaultfd, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

/* Maps memory, at the place of an earlier mapping if there is one. */
static unsigned char *mapped(unsigned char *earlier) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    if (earlier) {
        CHECK(munmap(earlier, LONGEST) == 0);
        flags |= MAP_FIXED_NOREPLACE;
    }
    unsigned char *memory = mmap(earlier, LONGEST, PROT_READ | PROT_WRITE, flags, -1, 0);
    CHECK(memory != MAP_FAILED);
    return memory;
}

static uint32_t counter(mx_endpoint_t endpoint, const char *label) {
    static char labels[COUNTERS_MAX][128];
    uint32_t values[COUNTERS_MAX], count;
    OK(mx_get_info(endpoint, MX_COUNTERS_COUNT, NULL, 0, &count, sizeof count));
    CHECK(count <= COUNTERS_MAX);
    OK(mx_get_info(endpoint, MX_COUNTERS_LABELS, NULL, 0, labels, count * 128));
    OK(mx_get_info(endpoint, MX_COUNTERS_VALUES, NULL, 0, values, count * 4));
    for (uint32_t at = 0; at < count; at++)
        if (strcmp(labels[at], label) == 0) return values[at];
    CHECK(!"there is no such counter");
    return 0;
}

/* How long messages used the memory of this process. */
struct registrations {
    uint32_t made, reused, invalidated, unwatched, copied;
};

static struct registrations registrations(mx_endpoint_t endpoint) {
    struct registrations all = {
        counter(endpoint, "memory_registered"), counter(endpoint, "memory_reused"),
        counter(endpoint, "memory_invalidated"), counter(endpoint, "memory_unwatched"),
        counter(endpoint, "memory_copied"),
    };
    printf("registrations: %u made, %u reused, %u invalidated, %u unwatched; %u copied\n", all.made,
           all.reused, all.invalidated, all.unwatched, all.copied);
    return all;
}

static unsigned char bytes[LONGEST];

static int echoes(void) {
    mx_endpoint_t endpoint;
    OK(mx_open_endpoint(0, ECHO, KEY, NULL, 0, &endpoint));
    printf("is open\n");
    fflush(stdout);
    for (;;) {
        mx_status_t status = ended(endpoint, receiving(endpoint, bytes, sizeof bytes, 0, 0));
        /* A long message of a daemon that ended fails here too. */
        if (status.code != 0) continue;
        how(endpoint, sending(endpoint, bytes, status.xfer_length, status.source, status.match_info),
            NULL);
    }
}

static int crosses(uint64_t nic, const char *file, int count, int is_tuned) {
    static const uint32_t lengths[] = {8, 5000, LONGEST};
    unsigned char *out = mapped(NULL), *in = mapped(NULL);
    mx_endpoint_t endpoint;
    OK(mx_open_endpoint(0, 6, KEY, NULL, 0, &endpoint));
    mx_endpoint_addr_t to = reach(endpoint, nic, ECHO, KEY);
    int before = 0, failed = 0, lost = 0;
    for (uint32_t number = 0; count > 0; number++) {
        uint32_t length = lengths[number % 3], got = 0, result = 0;
        if (number % MAPPED_MESSAGES == 0) {
            out = mapped(out);
            in = mapped(in);
        }
        memset(out, (int)number, length);
        memcpy(out, &number, sizeof number);
        mx_request_t receive = receiving(endpoint, in, LONGEST, number, MX_MATCH_MASK_NONE);
        mx_status_code_t code = how(endpoint, synchronous(endpoint, out, length, to, number), NULL);
        if (code == MX_STATUS_SUCCESS) {
            /* The echo may have had no daemon for its answer. */
            mx_status_t status;
            OK(mx_wait(endpoint, &receive, 5000, &status, &result));
            if (result == 1 && status.code == MX_STATUS_SUCCESS) {
                got = status.xfer_length;
                CHECK(got == length && memcmp(in, out, length) == 0);
                if (access(file, F_OK) == 0) count--;
                else before++;
                continue;
            }
            lost++;
        } else {
            printf("message %u: %s\n", number, mx_strstatus(code));
            failed++;
        }
        if (result == 0) {
            OK(mx_cancel(endpoint, &receive, &result));
            if (result == 0) how(endpoint, receive, NULL);
        }
        CHECK(failed + lost < 1000);
        to = reach(endpoint, nic, ECHO, KEY);
    }
    struct registrations all = registrations(endpoint);
    /* Endpoints of the previous daemon count in others. */
    CHECK(!is_tuned || (all.reused >= 4 && all.invalidated >= 1 && all.unwatched == 0));
    CHECK(!is_tuned || all.copied == 0);
    printf("passed: %d before, %d failed, %d without an answer\n", before, failed, lost);
    return 0;
}

static int plain(uint64_t nic) {
    mx_endpoint_t endpoint;
    OK(mx_open_endpoint(0, 6, KEY, NULL, 0, &endpoint));
    mx_endpoint_addr_t to = reach(endpoint, nic, ECHO, KEY);
    unsigned char *out = mapped(NULL), *in = mapped(NULL);
    for (uint32_t number = 0; number < 4; number++) {
        out = mapped(out);
        in = mapped(in);
        memset(out, (int)number + 1, LONGEST);
        mx_request_t receive = receiving(endpoint, in, LONGEST, number, MX_MATCH_MASK_NONE);
        mx_request_t send = synchronous(endpoint, out, LONGEST, to, number);
        CHECK(how(endpoint, send, NULL) == MX_STATUS_SUCCESS);
        CHECK(how(endpoint, receive, NULL) == MX_STATUS_SUCCESS);
        CHECK(memcmp(in, out, LONGEST) == 0);
    }
    /* A slab in each direction beside the registrations: all within the limit of locked memory. */
    exchange(endpoint, to, 7);
    mx_request_t receive = receiving(endpoint, in, 8, 99, MX_MATCH_MASK_NONE);
    CHECK(how(endpoint, synchronous(endpoint, out, LONGEST, to, 99), NULL) == MX_STATUS_SUCCESS);
    CHECK(how(endpoint, receive, NULL) == MX_STATUS_TRUNCATED);
    struct registrations all = registrations(endpoint);
    CHECK(all.made == 9 && all.unwatched == 9 && all.reused == 0 && all.copied == 0);
    OK(mx_close_endpoint(endpoint));
    printf("passed\n");
    return 0;
}

int main(int argc, char **argv) {
    int is_plain = argc == 3 && strcmp(argv[1], "plain") == 0;
    int is_tuned = argc == 5 && strcmp(argv[1], "tuned") == 0;
    if (is_plain || is_tuned) leave_root();
    if (is_plain) forbid_watches();
    mx_set_error_handler(MX_ERRORS_RETURN);
    OK(mx_init());
    if (argc == 3 && strcmp(argv[1], "fork") == 0) return forks(strtoull(argv[2], NULL, 0));
    if (argc == 2 && strcmp(argv[1], "echo") == 0) return echoes();
    if (is_plain) return plain(strtoull(argv[2], NULL, 0));
    CHECK(is_tuned || (argc == 5 && strcmp(argv[1], "cross") == 0));
    return crosses(strtoull(argv[2], NULL, 0), argv[3], atoi(argv[4]), is_tuned);
}
