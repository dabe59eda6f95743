/* Objects that exist before a domain is opened, through the core: infos, fabrics, event queues.
 * With "slow", a daemon that never answers is queried once. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>

#define CHECK(what)                                                       \
    do {                                                                  \
        if (!(what)) {                                                    \
            printf("%s:%d: %s does not hold\n", __FILE__, __LINE__, #what); \
            exit(1);                                                      \
        }                                                                 \
    } while (0)

static const uint32_t OLD = FI_VERSION(1, 4), NEW = FI_VERSION(1, 17);

static struct fi_info *wanted(void) {
    struct fi_info *hints = fi_allocinfo();
    CHECK(hints);
    hints->fabric_attr->prov_name = strdup("causeway");
    hints->ep_attr->type = FI_EP_RDM;
    hints->caps = FI_TAGGED;
    return hints;
}

/* The infos can be copied, used as hints, and freed. */
static void infos(void) {
    struct fi_info *hints = wanted(), *info = NULL, *again = NULL, *copy;
    char text[16384];
    CHECK(fi_getinfo(NEW, NULL, NULL, 0, hints, &info) == 0);
    CHECK(info && !info->next);
    CHECK(strcmp(info->fabric_attr->prov_name, "causeway") == 0);
    CHECK(info->fabric_attr->api_version == NEW);
    CHECK(info->domain_attr->mr_mode == 0);
    CHECK(info->src_addrlen == 24 && info->src_addr && !info->dest_addr);
    CHECK(strstr(fi_tostr_r(text, sizeof text, info, FI_TYPE_INFO), "cq_data_size: 8"));
    copy = fi_dupinfo(info);
    CHECK(copy && strcmp(copy->domain_attr->name, info->domain_attr->name) == 0);
    CHECK(fi_getinfo(NEW, NULL, NULL, 0, copy, &again) == 0 && again);
    CHECK(again->caps == info->caps && again->tx_attr->caps == info->tx_attr->caps);
    fi_freeinfo(again);
    fi_freeinfo(copy);
    fi_freeinfo(info);

    hints->domain_attr->mr_mode = FI_MR_BASIC;
    CHECK(fi_getinfo(OLD, NULL, NULL, 0, hints, &info) == 0);
    CHECK(info->domain_attr->mr_mode == FI_MR_BASIC);
    fi_freeinfo(info);

    hints->domain_attr->mr_mode = 0;
    CHECK(fi_getinfo(NEW, "a:0", NULL, FI_SOURCE, hints, &info) == 0);
    fi_freeinfo(info);
    CHECK(fi_getinfo(NEW, "elsewhere", NULL, FI_SOURCE, hints, &info) == -FI_ENODATA);
    hints->ep_attr->max_msg_size = SIZE_MAX;
    CHECK(fi_getinfo(NEW, NULL, NULL, 0, hints, &info) == -FI_ENODATA);
    fi_freeinfo(hints);
}

static void objects(void) {
    struct fi_info *hints = wanted(), *info = NULL;
    struct fid_fabric *fabric = NULL;
    struct fid_eq *eq = NULL;
    struct fid_wait *set = NULL;
    struct fid_pep *pep = NULL;
    struct fi_eq_attr attr = {.wait_obj = FI_WAIT_FD, .flags = FI_WRITE};
    struct fi_wait_attr wait = {.wait_obj = FI_WAIT_FD};
    struct fi_eq_entry entry = {.data = 42};
    struct fi_eq_err_entry error = {0};
    struct pollfd polled = {.events = POLLIN};
    struct fid *fids[1];
    uint32_t event = 0;
    int context;
    CHECK(fi_getinfo(NEW, NULL, NULL, 0, hints, &info) == 0);
    CHECK(fi_fabric(info->fabric_attr, &fabric, &context) == 0);
    CHECK(fabric->fid.fclass == FI_CLASS_FABRIC && fabric->fid.context == &context);
    CHECK(fi_eq_open(fabric, &attr, &eq, &context) == 0);
    CHECK(fi_close(&fabric->fid) == -FI_EBUSY);
    CHECK(fi_wait_open(fabric, &wait, &set) == -FI_ENOSYS);
    CHECK(fi_passive_ep(fabric, info, &pep, NULL) == -FI_ENOSYS);

    CHECK(fi_control(&eq->fid, FI_GETWAIT, &polled.fd) == 0);
    fids[0] = &eq->fid;
    CHECK(fi_trywait(fabric, fids, 1) == 0 && poll(&polled, 1, 0) == 0);
    CHECK(fi_eq_read(eq, &event, &entry, sizeof entry, 0) == -FI_EAGAIN);
    CHECK(fi_eq_readerr(eq, &error, 0) == -FI_EAGAIN);
    CHECK(fi_eq_sread(eq, &event, &entry, sizeof entry, 1, 0) == -FI_EAGAIN);
    CHECK(fi_eq_write(eq, FI_NOTIFY, &entry, sizeof entry, 0) == sizeof entry);
    CHECK(fi_trywait(fabric, fids, 1) == -FI_EAGAIN && poll(&polled, 1, 0) == 1);
    entry.data = 0;
    CHECK(fi_eq_sread(eq, &event, &entry, sizeof entry, -1, 0) == sizeof entry);
    CHECK(event == FI_NOTIFY && entry.data == 42 && poll(&polled, 1, 0) == 0);
    CHECK(fi_close(&eq->fid) == 0);
    CHECK(fi_close(&fabric->fid) == 0);
    fi_freeinfo(info);
    fi_freeinfo(hints);
}

static double took(void) {
    struct timespec before, after;
    struct fi_info *hints = wanted(), *info = NULL;
    clock_gettime(CLOCK_MONOTONIC, &before);
    CHECK(fi_getinfo(NEW, NULL, NULL, 0, hints, &info) == -FI_ENODATA);
    clock_gettime(CLOCK_MONOTONIC, &after);
    fi_freeinfo(hints);
    return (after.tv_sec - before.tv_sec) + (after.tv_nsec - before.tv_nsec) / 1e9;
}

int main(int count, char **arguments) {
    if (count > 1 && strcmp(arguments[1], "slow") == 0) {
        double first = took(), second = took();
        CHECK(first > 1 && first < 20 && second < 1);
    } else {
        infos();
        objects();
    }
    puts("ok");
    return 0;
}
