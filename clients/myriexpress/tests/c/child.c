/* child: a process with endpoints forks, also while its threads are in calls. */
#include <pthread.h>
#include <sys/wait.h>

#include "check.h"

static mx_endpoint_t a, b;
static uint64_t nic_a, nic_b;
static volatile int over;

static void *calls(void *unused) {
    mx_status_t status;
    uint32_t result;
    while (!over) OK(mx_wait_any(b, 1, 1, MX_MATCH_MASK_NONE, &status, &result));
    return unused;
}

/* A child cannot use endpoints of its parent, and can use its own. */
static void child(mx_endpoint_addr_t to_b, uint32_t number) {
    mx_status_t status;
    mx_request_t request;
    uint32_t result;
    mx_segment_t segment = {&number, sizeof number};
    IS(mx_test_any(a, 0, 0, &status, &result), MX_BAD_ENDPOINT);
    IS(mx_isend(b, &segment, 1, to_b, 0, NULL, &request), MX_BAD_ENDPOINT);
    IS(mx_close_endpoint(a), MX_BAD_ENDPOINT);
    mx_endpoint_t own;
    OK(mx_open_endpoint(0, MX_ANY_ENDPOINT, 77, NULL, 0, &own));
    mx_endpoint_addr_t to = reach(own, nic_b, 2, 77);
    mx_segment_t out = {&number, sizeof number};
    OK(mx_issend(own, &out, 1, to, 7, NULL, &request));
    CHECK(ended(own, request).code == MX_STATUS_SUCCESS);
    OK(mx_close_endpoint(own));
    _exit(0);
}

int main(void) {
    mx_set_error_handler(MX_ERRORS_RETURN);
    OK(mx_init());
    OK(mx_board_number_to_nic_id(0, &nic_a));
    OK(mx_board_number_to_nic_id(1, &nic_b));
    OK(mx_open_endpoint(0, 1, 77, NULL, 0, &a));
    OK(mx_open_endpoint(1, 2, 77, NULL, 0, &b));
    mx_endpoint_addr_t to_b = reach(a, nic_b, 2, 77);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, calls, NULL) == 0);
    for (uint32_t number = 1; number <= 20; number++) {
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) child(to_b, number);
        uint32_t in = 0;
        CHECK(ended(b, receiving(b, &in, sizeof in, 7, MX_MATCH_MASK_NONE)).code == 0 && in == number);
        int how;
        CHECK(waitpid(pid, &how, 0) == pid && how == 0);
        /* Endpoints of the parent continue. */
        CHECK(ended(a, sending(a, &number, sizeof number, to_b, 8)).code == 0);
        CHECK(ended(b, receiving(b, &in, sizeof in, 8, MX_MATCH_MASK_NONE)).code == 0);
    }
    over = 1;
    pthread_join(thread, NULL);
    OK(mx_close_endpoint(a));
    OK(mx_close_endpoint(b));
    return 0;
}
