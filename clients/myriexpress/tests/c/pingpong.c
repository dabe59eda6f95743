/* pingpong FIRST PEER_NIC: exchanges messages of all lengths with another process. */
#include "check.h"

static unsigned char byte(uint32_t seed, uint32_t at) {
    return (unsigned char)((seed * 2654435761u + at * 40503u) >> 7);
}

int main(int argc, char **argv) {
    CHECK(argc == 3);
    int first = atoi(argv[1]);
    uint64_t peer = strtoull(argv[2], NULL, 0);
    mx_set_error_handler(MX_ERRORS_RETURN);
    OK(mx_init());
    mx_endpoint_t endpoint;
    OK(mx_open_endpoint(0, 3, 77, NULL, 0, &endpoint));
    mx_endpoint_addr_t to = {{0, 0}};
    if (first) to = reach(endpoint, peer, 3, 77);
    static const uint32_t lengths[] = {0,    1,    8,     31,    32,    33,     128,    129,
                                       4096, 8192, 8193,  32768, 32769, 100000, 1 << 20, 5000001};
    unsigned char *out = malloc(5000001), *in = malloc(5000001);
    for (uint32_t round = 0; round < 3 * sizeof lengths / sizeof *lengths; round++) {
        uint32_t length = lengths[round % (sizeof lengths / sizeof *lengths)];
        mx_request_t receive = receiving(endpoint, in, 5000001, round, MX_MATCH_MASK_NONE);
        if (first) {
            for (uint32_t at = 0; at < length; at++) out[at] = byte(round, at);
            CHECK(ended(endpoint, sending(endpoint, out, length, to, round)).code == 0);
        }
        mx_status_t status = ended(endpoint, receive);
        CHECK(status.code == MX_STATUS_SUCCESS && status.match_info == round);
        CHECK(status.msg_length == length && status.xfer_length == length);
        for (uint32_t at = 0; at < length; at++) CHECK(in[at] == byte(round, at));
        uint64_t nic;
        uint32_t number;
        OK(mx_decompose_endpoint_addr(status.source, &nic, &number));
        CHECK(nic == peer && number == 3);
        if (!first) CHECK(ended(endpoint, sending(endpoint, in, length, status.source, round)).code == 0);
    }
    /* The last message is answered before the processes end. */
    if (first) {
        CHECK(ended(endpoint, sending(endpoint, NULL, 0, to, 99)).code == 0);
    } else {
        CHECK(ended(endpoint, receiving(endpoint, in, 0, 99, MX_MATCH_MASK_NONE)).code == 0);
    }
    OK(mx_close_endpoint(endpoint));
    OK(mx_finalize());
    return 0;
}
