/* fatal: a failed call with the default error handler. */
#include "myriexpress.h"

int main(void) { return (int)mx_finalize(); }
