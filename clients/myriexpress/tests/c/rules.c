/* rules: two endpoints of one process, on boards 0 and 1, and the guarantees of the calls. */
#include <pthread.h>
#include <sys/mman.h>

#include "check.h"
#include "mx_io.h"
#include "mx_raw.h"

static mx_endpoint_t a, b;
static uint64_t nic_a, nic_b;
static mx_endpoint_addr_t to_b;
static const uint64_t EXACT = MX_MATCH_MASK_NONE;

static mx_status_t got_by(mx_endpoint_t endpoint, mx_request_t request) {
    mx_status_t status;
    uint32_t result;
    for (;;) {
        OK(mx_test(endpoint, &request, &status, &result));
        if (result) return status;
        OK(mx_progress(a));
    }
}

static void matching(void) {
    int one = 1, two = 2, in = 0, other = 0;
    /* Unexpected messages: probed without receiving, then received in order from any source. */
    CHECK(ended(a, sending(a, &one, sizeof one, to_b, 0x1234)).code == 0);
    CHECK(ended(a, sending(a, &two, sizeof two, to_b, 0x1299)).code == 0);
    mx_status_t status;
    uint32_t result;
    for (int time = 0; time < 2; time++) {
        OK(mx_probe(b, MX_INFINITE, 0x1200, 0xff00, &status, &result));
        CHECK(result == 1 && status.match_info == 0x1234 && status.msg_length == sizeof one);
    }
    OK(mx_iprobe(b, 0x1300, 0xff00, &status, &result));
    CHECK(result == 0);
    status = ended(b, receiving(b, &in, sizeof in, 0x1200, 0xff00));
    CHECK(in == 1 && status.match_info == 0x1234);
    uint64_t nic;
    uint32_t number;
    OK(mx_decompose_endpoint_addr(status.source, &nic, &number));
    CHECK(nic == nic_a);
    status = ended(b, receiving(b, &in, sizeof in, 0, 0));
    CHECK(in == 2 && status.match_info == 0x1299);
    /* Posted receives match in post order; test_any finds them by match information in completion order. */
    int context;
    mx_segment_t segment = {&in, sizeof in};
    mx_request_t first, second, peeked;
    OK(mx_irecv(b, &segment, 1, 0x10, 0xf0, &context, &first));
    segment.segment_ptr = &other;
    OK(mx_irecv(b, &segment, 1, 0, 0, NULL, &second));
    void *found;
    OK(mx_context(&first, &found));
    CHECK(found == &context);
    CHECK(ended(a, sending(a, &two, sizeof two, to_b, 0x20)).code == 0);
    CHECK(ended(a, sending(a, &one, sizeof one, to_b, 0x11)).code == 0);
    OK(mx_peek(b, MX_INFINITE, &peeked, &result));
    CHECK(result == 1 && peeked == second);
    OK(mx_wait_any(b, MX_INFINITE, 0x10, 0xf0, &status, &result));
    CHECK(result == 1 && status.match_info == 0x11 && in == 1 && status.context == &context);
    OK(mx_test_any(b, 0x10, 0xf0, &status, &result));
    CHECK(result == 0);
    OK(mx_ipeek(b, &peeked, &result));
    CHECK(result == 1 && peeked == second);
    CHECK(ended(b, second).match_info == 0x20 && other == 2);
    IS(mx_test(b, &second, &status, &result), MX_BAD_REQUEST);
}

static void truncation(void) {
    char out[100], in[100];
    memset(out, 7, sizeof out);
    memset(in, 1, sizeof in);
    mx_request_t receive = receiving(b, in, 10, 5, EXACT);
    CHECK(ended(a, sending(a, out, sizeof out, to_b, 5)).code == MX_STATUS_SUCCESS);
    mx_status_t status = ended(b, receive);
    CHECK(status.code == MX_STATUS_TRUNCATED);
    CHECK(status.msg_length == 100 && status.xfer_length == 10 && in[9] == 7 && in[10] == 1);
    /* A synchronous send ends. */
    mx_segment_t segment = {out, sizeof out};
    mx_request_t send;
    OK(mx_issend(a, &segment, 1, to_b, 6, NULL, &send));
    uint32_t result;
    OK(mx_ibuffered(a, &send, &result));
    CHECK(result == 0);
    OK(mx_wait(a, &send, 20, &status, &result));
    CHECK(result == 0);
    CHECK(got_by(b, receiving(b, in, 10, 6, EXACT)).code == MX_STATUS_TRUNCATED);
    status = ended(a, send);
    CHECK(status.code == MX_STATUS_TRUNCATED && status.xfer_length == 10);
    /* Several segments, on both sides. */
    mx_segment_t from[] = {{out, 3}, {NULL, 0}, {out + 50, 40}}, into[] = {{in, 1}, {in + 60, 40}, {in + 2, 2}};
    for (int at = 0; at < 100; at++) out[at] = (char)at;
    OK(mx_irecv(b, into, 3, 8, EXACT, NULL, &receive));
    OK(mx_isend(a, from, 3, to_b, 8, NULL, &send));
    CHECK(ended(a, send).code == 0 && ended(b, receive).xfer_length == 43);
    CHECK(in[0] == 0 && in[60] == 1 && in[62] == 50 && in[99] == 87 && in[2] == 88 && in[3] == 89);
}

static void giving_up(void) {
    char in[8];
    mx_status_t status;
    uint32_t result;
    mx_request_t receive = receiving(b, in, sizeof in, 9, EXACT), forgotten;
    mx_request_t copy = receive;
    /* Without a place for the result nothing is cancelled. */
    IS(mx_cancel(b, &receive, NULL), MX_BAD_PARAM_VAL);
    OK(mx_test(b, &receive, &status, &result));
    CHECK(result == 0 && receive == copy);
    OK(mx_cancel(b, &receive, &result));
    CHECK(result == 1 && receive == NULL);
    IS(mx_test(b, &copy, &status, &result), MX_BAD_REQUEST);
    /* A wait ends at its timeout, without an error. */
    receive = receiving(b, in, sizeof in, 9, EXACT);
    OK(mx_wait(b, &receive, 30, &status, &result));
    CHECK(result == 0 && receive != NULL);
    OK(mx_wait_any(b, 30, 9, EXACT, &status, &result));
    CHECK(result == 0);
    OK(mx_probe(b, 30, 9, EXACT, &status, &result));
    CHECK(result == 0);
    OK(mx_set_request_timeout(b, receive, 30));
    CHECK(ended(b, receive).code == MX_STATUS_TIMEOUT);
    /* Synchronous sends without a receive: neither cancelled nor endless. */
    mx_segment_t segment = {in, sizeof in};
    OK(mx_set_request_timeout(a, NULL, 30));
    OK(mx_issend(a, &segment, 1, to_b, 9, NULL, &receive));
    OK(mx_set_request_timeout(a, NULL, MX_INFINITE));
    IS(mx_cancel(a, &receive, &result), MX_CANCEL_NOT_SUPPORTED);
    CHECK(ended(a, receive).code == MX_STATUS_TIMEOUT);
    CHECK(got_by(b, receiving(b, in, sizeof in, 9, EXACT)).code == MX_STATUS_ABORTED);
    /* A forgotten receive still receives, and is not reported. */
    forgotten = receiving(b, in, sizeof in, 9, EXACT);
    OK(mx_forget(b, &forgotten));
    CHECK(forgotten == NULL);
    OK(mx_isend(a, &segment, 1, to_b, 9, NULL, NULL));
    OK(mx_wait_any(b, 30, 0, 0, &status, &result));
    CHECK(result == 0);
    OK(mx_iprobe(b, 0, 0, &status, &result));
    CHECK(result == 0);
}

static void *wake(void *unused) {
    usleep(50000);
    OK(mx_wakeup(b));
    return unused;
}

static mx_endpoint_t closing;
static void *shut(void *unused) {
    usleep(50000);
    OK(mx_close_endpoint(closing));
    return unused;
}

static void waking(void) {
    char in[8];
    pthread_t thread;
    mx_status_t status;
    uint32_t result = 7;
    mx_request_t receive = receiving(b, in, sizeof in, 9, EXACT);
    CHECK(pthread_create(&thread, NULL, wake, NULL) == 0);
    OK(mx_wait(b, &receive, MX_INFINITE, &status, &result));
    CHECK(result == 0);
    pthread_join(thread, NULL);
    OK(mx_cancel(b, &receive, &result));
    OK(mx_open_endpoint(0, MX_ANY_ENDPOINT, 1, NULL, 0, &closing));
    CHECK(pthread_create(&thread, NULL, shut, NULL) == 0);
    IS(mx_wait_any(closing, MX_INFINITE, 0, 0, &status, &result), MX_BAD_ENDPOINT);
    pthread_join(thread, NULL);
}

static mx_request_t two_waits[2];
static void *await_one(void *which) {
    CHECK(ended(b, two_waits[(size_t)which]).code == 0);
    return NULL;
}

static void threads(void) {
    static char in[2][8];
    for (int round = 0; round < 50; round++) {
        pthread_t all[2];
        for (size_t at = 0; at < 2; at++) {
            two_waits[at] = receiving(b, in[at], 8, at, EXACT);
            CHECK(pthread_create(&all[at], NULL, await_one, (void *)at) == 0);
        }
        if (round % 2) usleep(1000);
        for (size_t at = 2; at > 0; at--) CHECK(ended(a, sending(a, in, 8, to_b, at - 1)).code == 0);
        for (size_t at = 0; at < 2; at++) pthread_join(all[at], NULL);
    }
}

static int handled;
static mx_unexp_handler_action_t handler(void *context, mx_endpoint_addr_t source, uint64_t info,
                                         uint32_t length, void *data) {
    uint64_t nic;
    uint32_t number;
    OK(mx_decompose_endpoint_addr(source, &nic, &number));
    CHECK(context == &handled && nic == nic_a);
    /* Messages of at most 32 KiB may come whole. */
    CHECK(length > 32768 ? data == NULL : memcmp(data, "handler", 8) == 0);
    IS(mx_close_endpoint(b), MX_CLOSE_IN_HANDLER);
    handled++;
    return info == 1 ? MX_RECV_FINISHED : MX_RECV_CONTINUE;
}

/* Waits up to 10 s for calls of the handler: messages pass through the daemon. */
static void until_handled(int calls) {
    for (int i = 0; handled < calls && i < 10000; i++) {
        OK(mx_progress(b));
        if (handled < calls) usleep(1000);
    }
    CHECK(handled == calls);
}

static void handlers(void) {
    static char out[40000] = "handler", in[40000];
    OK(mx_register_unexp_handler(b, handler, &handled));
    OK(mx_disable_progression(b));
    CHECK(ended(a, sending(a, out, 8, to_b, 1)).code == 0);
    OK(mx_progress(b));
    CHECK(handled == 0);
    OK(mx_reenable_progression(b));
    until_handled(1);
    mx_request_t large = sending(a, out, sizeof out, to_b, 1);
    CHECK(ended(a, sending(a, out, 8, to_b, 2)).code == 0);
    /* The handler gets both: it consumes one message, the other matches a receive. */
    until_handled(3);
    mx_status_t status = ended(b, receiving(b, in, sizeof in, 0, 0));
    CHECK(status.match_info == 2 && strcmp(in, "handler") == 0);
    CHECK(ended(a, large).code == MX_STATUS_TRUNCATED);
    OK(mx_register_unexp_handler(b, NULL, NULL));
}

static mx_return_t seen;
static mx_return_t note(char *text, mx_return_t code) {
    CHECK(text != NULL);
    seen = code;
    return MX_BAD_BAD_BAD;
}

static void errors(void) {
    char in[8];
    mx_request_t request;
    mx_status_t status;
    uint32_t result;
    mx_endpoint_t endpoint, wild = (mx_endpoint_t)&errors;
    mx_endpoint_addr_t none = {{0, 0}}, bad = {{~0ull, ~0ull}}, address;
    mx_segment_t null = {NULL, 8}, unmapped = {(void *)0x10000, 8}, top = {(void *)-8ull, 100};
    char *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(munmap(page + 4096, 4096) == 0);
    mx_segment_t half = {page + 4090, 8}, fine = {in, sizeof in};
    mx_segment_t all[] = {null, unmapped, top, half};
    for (int at = 0; at < 4; at++) {
        IS(mx_isend(a, &all[at], 1, to_b, 0, NULL, &request), MX_BAD_SEG_MEM);
        IS(mx_issend(a, &all[at], 1, to_b, 0, NULL, &request), MX_BAD_SEG_MEM);
        IS(mx_irecv(a, &all[at], 1, 0, 0, NULL, &request), MX_BAD_SEG_MEM);
    }
    static char const constant[4096] __attribute__((aligned(4096))) = "constant";
    mx_segment_t readable = {(void *)constant, 8};
    IS(mx_irecv(a, &readable, 1, 0, 0, NULL, &request), MX_BAD_SEG_MEM);
    IS(mx_isend(a, NULL, 1, to_b, 0, NULL, &request), MX_BAD_SEG_LIST);
    IS(mx_isend(a, &fine, 257, to_b, 0, NULL, &request), MX_BAD_SEG_CNT);
    IS(mx_isend(a, &fine, 1, none, 0, NULL, &request), MX_BAD_ENDPOINT);
    IS(mx_isend(a, &fine, 1, bad, 0, NULL, &request), MX_BAD_ENDPOINT);
    IS(mx_isend(b, &fine, 1, to_b, 0, NULL, &request), MX_BAD_ENDPOINT);
    IS(mx_isend(NULL, &fine, 1, to_b, 0, NULL, &request), MX_BAD_ENDPOINT);
    IS(mx_isend(wild, &fine, 1, to_b, 0, NULL, &request), MX_BAD_ENDPOINT);
    IS(mx_irecv(a, &fine, 1, 3, 1, NULL, &request), MX_BAD_MATCH_MASK);
    IS(mx_test(a, NULL, &status, &result), MX_BAD_REQUEST);
    request = NULL;
    IS(mx_test(a, &request, &status, &result), MX_BAD_REQUEST);
    request = (mx_request_t)in;
    IS(mx_wait(a, &request, 1, &status, &result), MX_BAD_REQUEST);
    IS(mx_cancel(a, &request, &result), MX_BAD_REQUEST);
    IS(mx_ibuffered(a, &request, &result), MX_BAD_REQUEST);
    IS(mx_test_any(a, 3, 1, &status, &result), MX_BAD_MATCH_MASK);
    IS(mx_decompose_endpoint_addr(bad, NULL, NULL), MX_BAD_ENDPOINT);
    IS(mx_connect(a, nic_b, 255, 0, 1000, &address), MX_BAD_ENDPOINT_ID);
    IS(mx_connect(a, nic_b, 200, 0, 1000, &address), MX_CONNECTION_FAILED);
    IS(mx_connect(a, nic_b, 2, 78, 1000, &address), MX_BAD_CONNECTION_KEY);
    IS(mx_connect(a, nic_a + 99, 2, 77, 1000, &address), MX_NIC_NOT_FOUND);
    IS(mx_open_endpoint(9, 0, 0, NULL, 0, &endpoint), MX_BOARD_UNKNOWN);
    IS(mx_open_endpoint(0, 255, 0, NULL, 0, &endpoint), MX_BAD_ENDPOINT_ID);
    IS(mx_open_endpoint(0, 1, 0, NULL, 0, &endpoint), MX_BUSY);
    IS(mx_open_endpoint(0, 5, 0, NULL, 1, &endpoint), MX_BAD_PARAM_LIST);
    mx_param_t params[2] = {{.key = (mx_param_key_t)9}, {.key = MX_PARAM_CONTEXT_ID}};
    IS(mx_open_endpoint(0, 5, 0, params, 1, &endpoint), MX_BAD_PARAM_NAME);
    params[1].val.context_id.bits = 16;
    params[1].val.context_id.shift = 49;
    IS(mx_open_endpoint(0, 5, 0, params + 1, 1, &endpoint), MX_BAD_PARAM_VAL);
    params[1].val.context_id.shift = 48;
    params[0].key = MX_PARAM_ERROR_HANDLER;
    params[0].val.error_handler = note;
    OK(mx_open_endpoint(0, 5, 0, params, 2, &endpoint));
    /* The endpoint's own handler gets the error, and chooses the returned code. */
    IS(mx_irecv(endpoint, &fine, 1, 0, 0, NULL, &request), MX_BAD_BAD_BAD);
    CHECK(seen == MX_BAD_MATCHING_FOR_CONTEXT_ID_MASK);
    OK(mx_close_endpoint(endpoint));
    IS(mx_close_endpoint(endpoint), MX_BAD_ENDPOINT);
    IS(mx_iput(a, in, 1, to_b, 0, NULL, &request), MX_FAILURE);
    mx_raw_endpoint_t raw;
    IS(mx_raw_open_endpoint(0, NULL, 0, &raw), MX_NO_PERM);
    IS(mx__init_api(0x301), MX_ALREADY_INITIALIZED);
    IS(mx__init_api(0x401), MX_BAD_LIB_VERSION);
    CHECK(mx_set_error_handler(MX_ERRORS_ARE_FATAL) == MX_ERRORS_RETURN);
    CHECK(mx_set_error_handler(MX_ERRORS_RETURN) == MX_ERRORS_ARE_FATAL);
    CHECK(mx_strerror((mx_return_t)1000) != NULL && mx_strstatus((mx_status_code_t)1000) != NULL);
}

static void boards(void) {
    uint32_t count, number;
    uint64_t ids[3], nic;
    char name[MX_MAX_HOSTNAME_LEN];
    uint8_t one = 1;
    OK(mx_get_info(NULL, MX_NIC_COUNT, NULL, 0, &count, sizeof count));
    CHECK(count == 2);
    IS(mx_get_info(NULL, MX_NIC_IDS, NULL, 0, ids, 16), MX_BAD_INFO_LENGTH);
    OK(mx_get_info(NULL, MX_NIC_IDS, NULL, 0, ids, sizeof ids));
    CHECK(ids[0] == nic_a && ids[1] == nic_b && ids[2] == 0);
    OK(mx_get_info(NULL, MX_NET_TYPE, &one, 1, &count, sizeof count));
    CHECK(count == MX_NET_ETHER);
    IS(mx_get_info(NULL, MX_NET_TYPE, NULL, 0, &count, sizeof count), MX_BAD_INFO_VAL);
    IS(mx_get_info(NULL, (mx_get_info_key_t)99, NULL, 0, &count, sizeof count), MX_BAD_INFO_KEY);
    OK(mx_nic_id_to_hostname(nic_b, name));
    CHECK(strcmp(name, "b:0") == 0);
    OK(mx_hostname_to_nic_id(name, &nic));
    CHECK(nic == nic_b);
    IS(mx_hostname_to_nic_id("nobody:0", &nic), MX_HOST_NOT_FOUND);
    IS(mx_hostname_to_nic_id("c:0", &nic), MX_HOST_NOT_FOUND);
    OK(mx_nic_id_to_board_number(nic_b, &number));
    CHECK(number == 1);
    IS(mx_nic_id_to_board_number(1, &number), MX_NIC_NOT_FOUND);
    IS(mx_board_number_to_nic_id(7, &nic), MX_BOARD_UNKNOWN);
    mx_mapper_state_t state = {.board_number = 1};
    OK(mx__get_mapper_state(0, &state));
    CHECK(state.mapper_mac[5] == (nic_b & 0xff) && state.network_configured == 1);
    CHECK(mx__regcache_clean(&state, sizeof state) == 1);
}

static void partners(void) {
    mx_request_t request;
    int context, word = 5, in = 0;
    void *found;
    uint32_t session;
    OK(mx_iconnect(a, nic_b, 2, 77, 0xabc, &context, &request));
    mx_status_t status = ended(a, request);
    CHECK(status.code == 0 && status.match_info == 0xabc && status.context == &context);
    OK(mx_get_endpoint_addr_context(status.source, &found));
    CHECK(found == NULL);
    OK(mx_set_endpoint_addr_context(status.source, &word));
    OK(mx_get_endpoint_addr_context(to_b, &found));
    CHECK(found == &word);
    OK(mx_decompose_endpoint_addr2(to_b, NULL, NULL, &session));
    CHECK(session == (uint32_t)(to_b.stuff[1] >> 32));
    OK(mx_iconnect(a, nic_b, 2, 78, 0, NULL, &request));
    CHECK(ended(a, request).code == MX_STATUS_BAD_KEY);
    /* To the own endpoint; both sides report a truncation. */
    mx_endpoint_addr_t self;
    OK(mx_get_endpoint_addr(a, &self));
    request = sending(a, &word, sizeof word, self, 1);
    CHECK(ended(a, receiving(a, &in, sizeof in, 1, EXACT)).code == 0 && in == 5);
    CHECK(ended(a, request).code == 0);
    /* After a disconnect, sends fail until the next connect. */
    OK(mx_disconnect(a, to_b));
    CHECK(ended(a, sending(a, &word, sizeof word, to_b, 1)).code == MX_STATUS_ENDPOINT_UNREACHABLE);
    to_b = reach(a, nic_b, 2, 77);
    CHECK(ended(a, sending(a, &word, sizeof word, to_b, 1)).code == 0);
    CHECK(ended(b, receiving(b, &in, sizeof in, 1, EXACT)).code == 0);
}

int main(void) {
    mx_set_error_handler(MX_ERRORS_RETURN);
    IS(mx_finalize(), MX_NOT_INITIALIZED);
    IS(mx_open_endpoint(0, 1, 77, NULL, 0, &a), MX_NOT_INITIALIZED);
    OK(mx_init());
    OK(mx_board_number_to_nic_id(0, &nic_a));
    OK(mx_board_number_to_nic_id(1, &nic_b));
    OK(mx_open_endpoint(0, 1, 77, NULL, 0, &a));
    OK(mx_open_endpoint(1, 2, 77, NULL, 0, &b));
    to_b = reach(a, nic_b, 2, 77);
    static void (*const all[])(void) = {matching, truncation, giving_up, waking, threads,
                                        handlers, errors,     boards,    partners};
    for (size_t at = 0; at < sizeof all / sizeof *all; at++) {
        printf("part %zu\n", at);
        fflush(stdout);
        all[at]();
    }
    OK(mx_close_endpoint(a));
    OK(mx_close_endpoint(b));
    OK(mx_finalize());
    return 0;
}
