/* goes_on asks NIC | goes_on answers: exchanges messages for each line that is read, and prints a
   line afterwards. "idle": first sleeps in a call that waits in vain. */
#include <sys/resource.h>

#include "check.h"

static unsigned char out[300000], in[300000];

static long busy_ms(void) {
    struct rusage usage;
    CHECK(getrusage(RUSAGE_SELF, &usage) == 0);
    return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000 +
           (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1000;
}

static void there_and_back(mx_endpoint_t endpoint, mx_endpoint_addr_t to, unsigned round) {
    static const uint32_t lengths[] = {8, 5000, 300000};
    for (int times = 0; times < 60; times++) {
        uint32_t length = lengths[times % 3];
        memset(out, (int)(round + times), length);
        mx_request_t receive = receiving(endpoint, in, sizeof in, 2, MX_MATCH_MASK_NONE);
        CHECK(ended(endpoint, sending(endpoint, out, length, to, 1)).code == 0);
        mx_status_t status = ended(endpoint, receive);
        CHECK(status.code == 0 && status.xfer_length == length && memcmp(in, out, length) == 0);
    }
}

static void asleep(mx_endpoint_t endpoint) {
    mx_request_t receive = receiving(endpoint, in, 8, 3, MX_MATCH_MASK_NONE);
    mx_status_t status;
    uint32_t result = 1;
    long since = busy_ms();
    OK(mx_wait(endpoint, &receive, 1500, &status, &result));
    CHECK(result == 0 && busy_ms() - since < 300);
    OK(mx_cancel(endpoint, &receive, &result));
    CHECK(result == 1);
}

int main(int argc, char **argv) {
    CHECK(argc >= 2);
    mx_endpoint_t endpoint;
    mx_set_error_handler(MX_ERRORS_RETURN);
    OK(mx_init());
    OK(mx_open_endpoint(0, 3, 77, NULL, 0, &endpoint));
    if (argc == 2) {
        for (;;) {
            mx_status_t status = ended(endpoint, receiving(endpoint, in, sizeof in, 0, 0));
            CHECK(status.code == 0);
            if (status.match_info == 99) break;
            mx_request_t send = sending(endpoint, in, status.xfer_length, status.source, 2);
            CHECK(ended(endpoint, send).code == 0);
        }
    } else {
        mx_endpoint_addr_t to = reach(endpoint, strtoull(argv[2], NULL, 0), 3, 77);
        char line[20];
        for (unsigned round = 0; fgets(line, sizeof line, stdin); round++) {
            if (strcmp(line, "idle\n") == 0) asleep(endpoint);
            there_and_back(endpoint, to, round);
            printf("met\n");
            fflush(stdout);
        }
        CHECK(ended(endpoint, sending(endpoint, NULL, 0, to, 99)).code == 0);
    }
    OK(mx_close_endpoint(endpoint));
    OK(mx_finalize());
    return 0;
}
