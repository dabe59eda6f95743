/* MX ping-pong between two processes.
 *
 *     mx_pingpong                      answers messages of one partner, then ends
 *     mx_pingpong NAME [COUNT [LEN]]   sends COUNT messages of LEN bytes to the NIC of that name
 *
 * Each process opens an endpoint of the NIC whose socket CAUSEWAY_MX names:
 *
 *     cc -O2 -o mx_pingpong mx_pingpong.c -lmyriexpress
 *     CAUSEWAY_MX=/run/causeway/mx1.sock ./mx_pingpong &
 *     CAUSEWAY_MX=/run/causeway/mx0.sock ./mx_pingpong mx1
 *
 * COUNT is 1,000 and LEN 64 by default; LEN is at most 1 MiB. The connect is tried 20 times, for
 * 1 s each; waits for messages have no time limit. A failure is printed, with exit status 1.
 */
#define _GNU_SOURCE
#include <myriexpress.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Endpoint number of the answering process, and the key that both processes must know. */
enum { ANSWERER = 1, KEY = 0x70696e67 };
/* The receiver of a message chooses it by these 64 bits. */
enum { PING = 1, PONG = 2, END = 3 };
enum { LEN_MAX = 1 << 20, CONNECT_MS = 1000, CONNECT_TRIES = 20 };

static unsigned char out[LEN_MAX], in[LEN_MAX];

/* Ends the process if an MX call failed. */
static void check(const char *call, mx_return_t code) {
    if (code == MX_SUCCESS) return;
    fprintf(stderr, "mx_pingpong: %s: %s\n", call, mx_strerror(code));
    exit(1);
}

/* Waits for the end of a request. */
static mx_status_t complete(mx_endpoint_t endpoint, mx_request_t request) {
    mx_status_t status;
    uint32_t done = 0;
    while (!done) check("mx_wait", mx_wait(endpoint, &request, MX_INFINITE, &status, &done));
    if (status.code != MX_STATUS_SUCCESS) {
        fprintf(stderr, "mx_pingpong: %s\n", mx_strstatus(status.code));
        exit(1);
    }
    return status;
}

static void send_to(mx_endpoint_t endpoint, mx_endpoint_addr_t to, void *bytes, uint32_t len,
                    uint64_t match) {
    mx_segment_t segment = {bytes, len};
    mx_request_t request;
    check("mx_isend", mx_isend(endpoint, &segment, 1, to, match, NULL, &request));
    complete(endpoint, request);
}

/* Receives the next message whose match bits agree with `match` where `mask` has ones. */
static mx_status_t receive(mx_endpoint_t endpoint, uint64_t match, uint64_t mask) {
    mx_segment_t segment = {in, LEN_MAX};
    mx_request_t request;
    check("mx_irecv", mx_irecv(endpoint, &segment, 1, match, mask, NULL, &request));
    return complete(endpoint, request);
}

static void answer(void) {
    mx_endpoint_t endpoint;
    check("mx_open_endpoint", mx_open_endpoint(0, ANSWERER, KEY, NULL, 0, &endpoint));
    puts("answering");
    fflush(stdout);
    for (;;) {
        mx_status_t status = receive(endpoint, 0, 0);
        uint64_t match = status.match_info == END ? END : PONG;
        send_to(endpoint, status.source, in, status.xfer_length, match);
        if (match == END) break;
    }
    check("mx_close_endpoint", mx_close_endpoint(endpoint));
}

/* Resolves a NIC's name and connects to the answering process, which may still be starting. */
static mx_endpoint_addr_t reach(mx_endpoint_t endpoint, char *name) {
    mx_endpoint_addr_t address;
    uint64_t nic;
    mx_return_t code = MX_HOST_NOT_FOUND;
    for (int tries = 0; tries < CONNECT_TRIES; tries++) {
        code = mx_hostname_to_nic_id(name, &nic);
        if (code == MX_SUCCESS)
            code = mx_connect(endpoint, nic, ANSWERER, KEY, CONNECT_MS, &address);
        if (code == MX_SUCCESS) return address;
        usleep(50000);
    }
    check("mx_connect", code);
    abort();
}

static void ping(char *name, int count, uint32_t len) {
    mx_endpoint_t endpoint;
    check("mx_open_endpoint", mx_open_endpoint(0, MX_ANY_ENDPOINT, KEY, NULL, 0, &endpoint));
    mx_endpoint_addr_t to = reach(endpoint, name);
    struct timespec from, until;
    clock_gettime(CLOCK_MONOTONIC, &from);
    for (int number = 0; number < count; number++) {
        memset(out, number, len);
        send_to(endpoint, to, out, len, PING);
        mx_status_t status = receive(endpoint, PONG, MX_MATCH_MASK_NONE);
        if (status.xfer_length != len || memcmp(in, out, len) != 0) {
            fprintf(stderr, "mx_pingpong: answer %d has other contents\n", number);
            exit(1);
        }
    }
    clock_gettime(CLOCK_MONOTONIC, &until);
    double us = (until.tv_sec - from.tv_sec) * 1e6 + (until.tv_nsec - from.tv_nsec) / 1e3;
    send_to(endpoint, to, NULL, 0, END);
    receive(endpoint, END, MX_MATCH_MASK_NONE);
    printf("%d messages of %u bytes answered, %.2f us each way\n", count, len, us / count / 2);
    check("mx_close_endpoint", mx_close_endpoint(endpoint));
}

int main(int argc, char **argv) {
    int count = argc > 2 ? atoi(argv[2]) : 1000;
    int len = argc > 3 ? atoi(argv[3]) : 64;
    if (count < 1 || len < 0 || len > LEN_MAX) {
        fprintf(stderr, "usage: mx_pingpong [NAME [COUNT [LEN]]], LEN at most %d\n", LEN_MAX);
        return 2;
    }
    /* Without this handler, MX ends the process at the first error. */
    mx_set_error_handler(MX_ERRORS_RETURN);
    check("mx_init", mx_init());
    if (argc > 1)
        ping(argv[1], count, (uint32_t)len);
    else
        answer();
    check("mx_finalize", mx_finalize());
    return 0;
}
