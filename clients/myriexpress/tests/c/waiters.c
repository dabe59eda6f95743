/* waiters: many threads wait for one endpoint, each for a request of its own. */
#include <pthread.h>

#include "check.h"

enum { THREADS = 8, ROUNDS = 300 };
static mx_endpoint_t a, b;
static mx_endpoint_addr_t to_b;
static pthread_barrier_t posted;

static void *waits(void *which) {
    uint64_t info = (uint64_t)(size_t)which;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint32_t in = 0;
        mx_request_t receive = receiving(b, &in, sizeof in, info, MX_MATCH_MASK_NONE);
        pthread_barrier_wait(&posted);
        mx_status_t status = ended(b, receive);
        CHECK(status.code == MX_STATUS_SUCCESS && in == round);
        pthread_barrier_wait(&posted);
    }
    return NULL;
}

/* Waits, and returns before a message arrives. */
static mx_request_t never;
static void *leaves(void *unused) {
    mx_status_t status;
    uint32_t result;
    OK(mx_wait(b, &never, 50, &status, &result));
    CHECK(result == 0);
    return unused;
}

static void *stays(void *unused) {
    uint32_t in;
    CHECK(ended(b, receiving(b, &in, sizeof in, 99, MX_MATCH_MASK_NONE)).code == 0);
    return unused;
}

/* The first thread leads until it returns. */
static void leaving(void) {
    pthread_t first, second;
    uint32_t out = 0, result;
    char in[8];
    never = receiving(b, in, sizeof in, 98, MX_MATCH_MASK_NONE);
    CHECK(pthread_create(&first, NULL, leaves, NULL) == 0);
    usleep(5000);
    CHECK(pthread_create(&second, NULL, stays, NULL) == 0);
    pthread_join(first, NULL);
    usleep(5000);
    CHECK(ended(a, sending(a, &out, sizeof out, to_b, 99)).code == 0);
    pthread_join(second, NULL);
    OK(mx_cancel(b, &never, &result));
    CHECK(result == 1);
}

int main(void) {
    mx_set_error_handler(MX_ERRORS_RETURN);
    OK(mx_init());
    uint64_t nic_b;
    OK(mx_board_number_to_nic_id(1, &nic_b));
    OK(mx_open_endpoint(0, 1, 77, NULL, 0, &a));
    OK(mx_open_endpoint(1, 2, 77, NULL, 0, &b));
    to_b = reach(a, nic_b, 2, 77);
    CHECK(pthread_barrier_init(&posted, NULL, THREADS + 1) == 0);
    pthread_t all[THREADS];
    for (size_t at = 0; at < THREADS; at++) CHECK(pthread_create(&all[at], NULL, waits, (void *)at) == 0);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        pthread_barrier_wait(&posted);
        /* Sometimes the threads poll, sometimes they sleep; all messages arrive together. */
        if (round % 3) usleep(500);
        for (uint32_t at = 0; at < THREADS; at++)
            CHECK(ended(a, sending(a, &round, sizeof round, to_b, (at + round) % THREADS)).code == 0);
        pthread_barrier_wait(&posted);
    }
    for (size_t at = 0; at < THREADS; at++) pthread_join(all[at], NULL);
    for (int time = 0; time < 5; time++) leaving();
    OK(mx_close_endpoint(a));
    OK(mx_close_endpoint(b));
    return 0;
}
