/* unmaps 1|0 NIC: the sender unmaps all or the end of an offered message before it is received. */
#include <sys/mman.h>

#include "check.h"
#include "mx_io.h"

enum { LENGTH = 4 << 20, PAGE = 4096 };

static void sends(mx_endpoint_t endpoint, mx_endpoint_addr_t to, size_t from) {
    char *buffer = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(buffer != MAP_FAILED);
    memset(buffer, 7, LENGTH);
    mx_request_t large = sending(endpoint, buffer, LENGTH, to, 1);
    if (from < LENGTH) {
        CHECK(munmap(buffer + from, LENGTH - from) == 0);
        mx__regcache_clean(buffer + from, LENGTH - from);
    }
    CHECK(ended(endpoint, sending(endpoint, "go", 2, to, 2)).code == MX_STATUS_SUCCESS);
    mx_status_t status = ended(endpoint, large);
    CHECK((status.code == MX_STATUS_SUCCESS) == (from == LENGTH));
    if (from > 0) CHECK(munmap(buffer, from) == 0);
}

static void receives(mx_endpoint_t endpoint, char *buffer, size_t from) {
    char go[2];
    CHECK(ended(endpoint, receiving(endpoint, go, 2, 2, MX_MATCH_MASK_NONE)).code == 0);
    memset(buffer, 0, LENGTH);
    mx_status_t status = ended(endpoint, receiving(endpoint, buffer, LENGTH, 1, MX_MATCH_MASK_NONE));
    CHECK((status.code == MX_STATUS_SUCCESS) == (from == LENGTH));
    for (size_t at = 0; from == LENGTH && at < LENGTH; at++) CHECK(buffer[at] == 7);
}

int main(int argc, char **argv) {
    CHECK(argc == 3);
    int first = atoi(argv[1]);
    static char buffer[LENGTH];
    mx_endpoint_t endpoint;
    mx_set_error_handler(MX_ERRORS_RETURN);
    OK(mx_init());
    OK(mx_open_endpoint(0, first, 5, NULL, 0, &endpoint));
    mx_endpoint_addr_t to = reach(endpoint, strtoull(argv[2], NULL, 0), !first, 5);
    size_t kept[] = {LENGTH, 0, LENGTH, LENGTH / 2, LENGTH - PAGE, LENGTH};
    for (int at = 0; at < 6; at++) {
        if (first) sends(endpoint, to, kept[at]);
        else receives(endpoint, buffer, kept[at]);
    }
    OK(mx_close_endpoint(endpoint));
    return 0;
}
