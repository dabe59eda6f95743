/* partner dies | partner waits NIC: a process is killed while its peer waits for it. */
#include "check.h"

int main(int argc, char **argv) {
    CHECK(argc >= 2);
    static char buffer[100000];
    mx_endpoint_t endpoint;
    mx_set_error_handler(MX_ERRORS_RETURN);
    OK(mx_init());
    OK(mx_open_endpoint(0, 0, 5, NULL, 0, &endpoint));
    if (argc == 2) {
        CHECK(ended(endpoint, receiving(endpoint, buffer, 8, 1, MX_MATCH_MASK_NONE)).code == 0);
        pid_t child = fork();
        if (child == 0) {
            alarm(60);
            for (;;) pause();
        }
        printf("met %d\n", (int)child);
        fflush(stdout);
        ended(endpoint, receiving(endpoint, buffer, 8, 3, MX_MATCH_MASK_NONE));
        return 1;
    }
    mx_endpoint_addr_t to = reach(endpoint, strtoull(argv[2], NULL, 0), 0, 5);
    mx_request_t large = sending(endpoint, buffer, sizeof buffer, to, 2);
    CHECK(ended(endpoint, sending(endpoint, buffer, 8, to, 1)).code == 0);
    mx_status_code_t code = ended(endpoint, large).code;
    CHECK(code == MX_STATUS_ENDPOINT_CLOSED || code == MX_STATUS_ENDPOINT_UNREACHABLE);
    CHECK(ended(endpoint, sending(endpoint, buffer, 8, to, 1)).code == MX_STATUS_ENDPOINT_UNREACHABLE);
    OK(mx_close_endpoint(endpoint));
    return 0;
}
