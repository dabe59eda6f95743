/* Counters with names, of an endpoint and of all endpoints of a board. */
#include "check.h"
#include "mx_io.h"

#define COUNTERS_MAX 64

static char labels[COUNTERS_MAX][128];
static uint32_t values[COUNTERS_MAX];
static uint32_t count;

static uint32_t of(mx_endpoint_t endpoint, uint32_t board, const char *label) {
    uint8_t number = (uint8_t)board;
    OK(mx_get_info(endpoint, MX_COUNTERS_LABELS, &number, 1, labels, count * 128));
    OK(mx_get_info(endpoint, MX_COUNTERS_VALUES, &number, 1, values, count * 4));
    for (uint32_t at = 0; at < count; at++)
        if (strcmp(labels[at], label) == 0)
            return values[at];
    CHECK(!"there is no such counter");
    return 0;
}

/* Sends messages to an endpoint of the same process. */
static void exchange(mx_endpoint_t from, mx_endpoint_t to, mx_endpoint_addr_t there, uint32_t len,
                     int times) {
    static char out[100000], in[100000];
    for (int time = 0; time < times; time++) {
        mx_segment_t give = {out, len}, take = {in, len};
        mx_request_t sends, receives;
        mx_status_t status;
        uint32_t done = 0;
        OK(mx_irecv(to, &take, 1, 7, MX_MATCH_MASK_NONE, NULL, &receives));
        OK(mx_isend(from, &give, 1, there, 7, NULL, &sends));
        while (!done) {
            OK(mx_progress(from));
            OK(mx_test(to, &receives, &status, &done));
        }
        CHECK(status.code == MX_STATUS_SUCCESS && status.xfer_length == len);
        OK(mx_wait(from, &sends, MX_INFINITE, &status, &done));
        CHECK(done);
    }
}

int main(int argc, char **argv) {
    int off = argc > 1 && strcmp(argv[1], "off") == 0;
    if (off)
        CHECK(setenv("MX_RCACHE", "0", 1) == 0);
    mx_endpoint_t one, two;
    mx_endpoint_addr_t there;
    uint64_t nic;
    uint32_t number = 0;
    OK(mx_init());
    OK(mx_get_info(NULL, MX_COUNTERS_COUNT, NULL, 0, &count, sizeof count));
    CHECK(count > 8 && count <= COUNTERS_MAX);
    OK(mx_open_endpoint(0, 1, 5, NULL, 0, &one));
    OK(mx_open_endpoint(0, 2, 5, NULL, 0, &two));
    OK(mx_board_number_to_nic_id(0, &nic));
    mx_request_t connects;
    mx_status_t status;
    OK(mx_iconnect(one, nic, 2, 5, 0, NULL, &connects));
    while (!number) {
        OK(mx_progress(two));
        OK(mx_test(one, &connects, &status, &number));
    }
    CHECK(status.code == MX_STATUS_SUCCESS);
    there = status.source;
    exchange(one, two, there, 8, 3);
    exchange(one, two, there, 100, 2);
    exchange(one, two, there, 4096, 4);
    exchange(one, two, there, 100000, 1);
    CHECK(of(one, 0, "sends_tiny") == 3 && of(two, 0, "receives_tiny") == 3);
    CHECK(of(one, 0, "sends_small") == 2 && of(two, 0, "receives_small") == 2);
    CHECK(of(one, 0, "sends_medium") == 4 && of(two, 0, "receives_medium") == 4);
    CHECK(of(one, 0, "sends_large") == 1 && of(two, 0, "receives_large") == 1);
    CHECK(of(one, 0, "bytes_sent") == 3 * 8 + 2 * 100 + 4 * 4096 + 100000);
    CHECK(of(two, 0, "bytes_received") == of(one, 0, "bytes_sent"));
    CHECK(of(one, 0, "connects") == 1 && of(two, 0, "connects") == 0);
    CHECK(of(two, 0, "sends_tiny") == 0 && of(two, 0, "unexpected") == 0);
    CHECK(of(NULL, 0, "sends_tiny") == 3 && of(NULL, 0, "receives_tiny") == 3);
    CHECK(of(NULL, 1, "sends_tiny") == 0);
    mx_set_error_handler(MX_ERRORS_RETURN);
    CHECK(mx_get_info(one, MX_COUNTERS_VALUES, NULL, 0, values, count * 4 - 1) ==
          MX_BAD_INFO_LENGTH);
    /* Validated memory is cached, unless the cache is disabled. */
    uint32_t checks = of(one, 0, "buffer_checks");
    exchange(one, two, there, 8, 10);
    CHECK(of(one, 0, "buffer_checks") - checks == (off ? 10 : 0));
    mx__regcache_clean(NULL, 0);
    checks = of(one, 0, "buffer_checks");
    exchange(one, two, there, 8, 10);
    CHECK(of(one, 0, "buffer_checks") - checks == (off ? 10 : 1));
    OK(mx_close_endpoint(one));
    OK(mx_close_endpoint(two));
    OK(mx_finalize());
    return 0;
}
