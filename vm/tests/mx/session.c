/* Processes of MX endpoints that fork, and that outlive their daemon.
     session fork NIC              forks while an endpoint of its own NIC is open
     session echo                  returns each message to its sender, until it is killed
     session cross NIC FILE COUNT  exchanges messages with an echo; after FILE exists, connects
                                   again after each failure, and ends after COUNT more messages
   A message that neither completes nor fails within 60 s is an error. */
#include <sys/wait.h>

#include "check.h"

#define KEY 77
#define ECHO 5
#define PATIENCE_MS 60000

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

static unsigned char bytes[100000];

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

static int crosses(uint64_t nic, const char *file, int count) {
    static const uint32_t lengths[] = {8, 5000, 100000};
    static unsigned char out[100000], in[100000];
    mx_endpoint_t endpoint;
    OK(mx_open_endpoint(0, 6, KEY, NULL, 0, &endpoint));
    mx_endpoint_addr_t to = reach(endpoint, nic, ECHO, KEY);
    int before = 0, failed = 0, lost = 0;
    for (uint32_t number = 0; count > 0; number++) {
        uint32_t length = lengths[number % 3], got = 0, result = 0;
        memset(out, (int)number, length);
        memcpy(out, &number, sizeof number);
        mx_request_t receive = receiving(endpoint, in, sizeof in, number, MX_MATCH_MASK_NONE);
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
    printf("passed: %d before, %d failed, %d without an answer\n", before, failed, lost);
    return 0;
}

int main(int argc, char **argv) {
    mx_set_error_handler(MX_ERRORS_RETURN);
    OK(mx_init());
    if (argc == 3 && strcmp(argv[1], "fork") == 0) return forks(strtoull(argv[2], NULL, 0));
    if (argc == 2 && strcmp(argv[1], "echo") == 0) return echoes();
    CHECK(argc == 5 && strcmp(argv[1], "cross") == 0);
    return crosses(strtoull(argv[2], NULL, 0), argv[3], atoi(argv[4]));
}
