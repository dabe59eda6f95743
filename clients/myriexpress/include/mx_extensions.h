/* MX message passing over Causeway: extensions.
 * SPDX-License-Identifier: Apache-2.0 OR MIT */
#ifndef MX_EXTENSIONS_H
#define MX_EXTENSIONS_H

#include "myriexpress.h"

#ifdef __cplusplus
extern "C" {
#endif

#define MX_HAS_ICONNECT_V2 1

typedef enum mx_unexp_handler_action {
    MX_RECV_CONTINUE = 0,
    MX_RECV_FINISHED = 1
} mx_unexp_handler_action_t;

/* `data` is NULL if the message has not arrived completely. */
typedef mx_unexp_handler_action_t (*mx_unexp_handler_t)(void *context, mx_endpoint_addr_t source,
                                                        uint64_t match_value, uint32_t length,
                                                        void *data);

mx_return_t mx_register_unexp_handler(mx_endpoint_t endpoint, mx_unexp_handler_t handler,
                                      void *context);
mx_return_t mx_iconnect(mx_endpoint_t endpoint, uint64_t nic_id, uint32_t endpoint_id,
                        uint32_t key, uint64_t match_info, void *context, mx_request_t *request);
mx_return_t mx_disconnect(mx_endpoint_t endpoint, mx_endpoint_addr_t address);
mx_return_t mx_forget(mx_endpoint_t endpoint, mx_request_t *request);
mx_return_t mx_progress(mx_endpoint_t endpoint);
mx_return_t mx_set_endpoint_addr_context(mx_endpoint_addr_t address, void *context);
mx_return_t mx_get_endpoint_addr_context(mx_endpoint_addr_t address, void **context);
/* With a NULL request: applies to later sends. */
mx_return_t mx_set_request_timeout(mx_endpoint_t endpoint, mx_request_t request,
                                   uint32_t milliseconds);
mx_return_t mx_decompose_endpoint_addr2(mx_endpoint_addr_t address, uint64_t *nic_id,
                                        uint32_t *endpoint_id, uint32_t *session_id);

#ifdef __cplusplus
}
#endif

#endif
