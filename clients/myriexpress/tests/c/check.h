/* Helpers of the test programs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mx_extensions.h"

#define CHECK(what)                                                        \
    do {                                                                   \
        if (!(what)) {                                                     \
            printf("%s:%d: %s\n", __FILE__, __LINE__, #what);              \
            exit(1);                                                       \
        }                                                                  \
    } while (0)
#define IS(call, code)                                                     \
    do {                                                                   \
        mx_return_t got_ = (call);                                         \
        if (got_ != (code)) {                                              \
            printf("%s:%d: %s gives %s\n", __FILE__, __LINE__, #call,      \
                   mx_strerror(got_));                                     \
            exit(1);                                                       \
        }                                                                  \
    } while (0)
#define OK(call) IS(call, MX_SUCCESS)

/* The peer may not have opened its endpoint yet, or may not answer in time on a busy machine. */
static inline mx_endpoint_addr_t reach(mx_endpoint_t endpoint, uint64_t nic, uint32_t number,
                                       uint32_t key) {
    mx_endpoint_addr_t address;
    for (int tries = 0;; tries++) {
        mx_return_t got = mx_connect(endpoint, nic, number, key, 1000, &address);
        if (got == MX_SUCCESS) return address;
        CHECK((got == MX_CONNECTION_FAILED || got == MX_TIMEOUT) && tries < 10000);
        usleep(1000);
    }
}

static inline mx_status_t ended(mx_endpoint_t endpoint, mx_request_t request) {
    mx_status_t status;
    uint32_t result = 0;
    OK(mx_wait(endpoint, &request, MX_INFINITE, &status, &result));
    CHECK(result == 1 && request == NULL);
    return status;
}

static inline mx_request_t sending(mx_endpoint_t endpoint, void *from, uint32_t length,
                                   mx_endpoint_addr_t to, uint64_t info) {
    mx_segment_t segment = {from, length};
    mx_request_t request;
    OK(mx_isend(endpoint, &segment, 1, to, info, NULL, &request));
    return request;
}

static inline mx_request_t receiving(mx_endpoint_t endpoint, void *into, uint32_t length,
                                     uint64_t info, uint64_t mask) {
    mx_segment_t segment = {into, length};
    mx_request_t request;
    OK(mx_irecv(endpoint, &segment, 1, info, mask, NULL, &request));
    return request;
}
