/* oversized NIC: sends causeway-mx serve a request that is longer than any it knows. */
#include "check.h"

int main(int argc, char **argv) {
    CHECK(argc == 2);
    static char request[25];
    mx_endpoint_t endpoint;
    mx_set_error_handler(MX_ERRORS_RETURN);
    OK(mx_init());
    OK(mx_open_endpoint(0, MX_ANY_ENDPOINT, 5, NULL, 0, &endpoint));
    mx_endpoint_addr_t to = reach(endpoint, strtoull(argv[1], NULL, 0), 7, 0xca5e);
    CHECK(ended(endpoint, sending(endpoint, request, sizeof request, to, 1ull << 32)).code ==
          MX_STATUS_SUCCESS);
    OK(mx_close_endpoint(endpoint));
    return 0;
}
