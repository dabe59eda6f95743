/* statuses [fatal]: failed requests are reported to the error handler before they complete. */
#include <pthread.h>

#include "check.h"

static mx_endpoint_t endpoint;
static mx_endpoint_addr_t self;
static int heard;
static mx_return_t last, answer;

static mx_return_t hears(char *text, mx_return_t code) {
    CHECK(text != NULL && text[0] != 0);
    /* The library holds no lock. */
    mx_status_t status;
    uint32_t result;
    OK(mx_test_any(endpoint, 0, 0, &status, &result));
    CHECK(result == 0);
    heard++;
    last = code;
    return answer;
}

static mx_status_t cut(void) {
    char in[3];
    mx_request_t receive = receiving(endpoint, in, sizeof in, 1, MX_MATCH_MASK_NONE);
    mx_segment_t segment = {"too long", 8};
    OK(mx_isend(endpoint, &segment, 1, self, 1, NULL, NULL));
    return ended(endpoint, receive);
}

/* Tests for any request while another thread connects: blocking connects have no visible request. */
static volatile int connecting = 1;
static void *looks(void *unused) {
    mx_status_t status;
    mx_request_t request;
    uint32_t result;
    while (connecting) {
        OK(mx_test_any(endpoint, 0, 0, &status, &result));
        CHECK(result == 0);
        OK(mx_ipeek(endpoint, &request, &result));
        CHECK(result == 0);
    }
    return unused;
}

int main(int argc, char **argv) {
    (void)argv;
    OK(mx_init());
    mx_param_t own = {.key = MX_PARAM_ERROR_HANDLER, .val = {.error_handler = hears}};
    OK(mx_open_endpoint(0, 1, 77, &own, argc == 1, &endpoint));
    OK(mx_get_endpoint_addr(endpoint, &self));
    if (argc > 1) {
        cut();
        return 7;
    }
    /* Both sides of a message to the own endpoint are truncated; the handler chooses their codes. */
    answer = (mx_return_t)MX_STATUS_ABORTED;
    CHECK(cut().code == MX_STATUS_ABORTED);
    CHECK(heard == 2 && last == (mx_return_t)MX_STATUS_TRUNCATED);
    answer = MX_SUCCESS;
    CHECK(cut().code == MX_STATUS_SUCCESS && heard == 4);
    /* A failed connect: mx_connect fails as a call, mx_iconnect as a request. */
    mx_endpoint_addr_t address;
    mx_request_t request;
    uint64_t nic;
    OK(mx_board_number_to_nic_id(1, &nic));
    answer = MX_FAILURE;
    IS(mx_connect(endpoint, nic, 9, 77, 0, &address), MX_FAILURE);
    CHECK(heard == 5 && last == MX_CONNECTION_FAILED);
    OK(mx_iconnect(endpoint, nic, 9, 77, 3, NULL, &request));
    CHECK(ended(endpoint, request).code == (mx_status_code_t)MX_FAILURE);
    CHECK(heard == 6 && last == (mx_return_t)MX_STATUS_ENDPOINT_CLOSED);
    /* A receive that times out. */
    char in[3];
    request = receiving(endpoint, in, sizeof in, 1, MX_MATCH_MASK_NONE);
    OK(mx_set_request_timeout(endpoint, request, 5));
    CHECK(ended(endpoint, request).code == (mx_status_code_t)MX_FAILURE);
    CHECK(heard == 7 && last == (mx_return_t)MX_STATUS_TIMEOUT);
    mx_endpoint_t other;
    OK(mx_open_endpoint(1, 2, 77, NULL, 0, &other));
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, looks, NULL) == 0);
    for (int time = 0; time < 200; time++) OK(mx_connect(endpoint, nic, 2, 77, 0, &address));
    connecting = 0;
    pthread_join(thread, NULL);
    OK(mx_close_endpoint(other));
    OK(mx_close_endpoint(endpoint));
    return 0;
}
