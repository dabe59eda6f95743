/* MX message passing over Causeway: declarations outside of the API that some programs use.
 * SPDX-License-Identifier: Apache-2.0 OR MIT */
#ifndef MX_IO_H
#define MX_IO_H

#include <stdlib.h>

#include "myriexpress.h"

#ifdef __cplusplus
extern "C" {
#endif

#define MX__INVALID_HANDLE (-1)

/* The caller sets the first field to select the board; the call fills the others. */
typedef struct mx_mapper_state {
    uint32_t board_number;
    uint8_t mapper_mac[6];
    uint16_t iport;
    uint32_t map_version;
    uint32_t num_hosts;
    uint32_t network_configured;
    uint32_t routes_valid;
    uint32_t level;
    uint32_t flags;
} mx_mapper_state_t;

mx_return_t mx_open_board(int board, void *handle);
mx_return_t mx__get_mapper_state(int handle, void *state);
/* Reports that memory is unmapped. */
int mx__regcache_clean(void *start, size_t length);

#ifdef __cplusplus
}
#endif

#endif
