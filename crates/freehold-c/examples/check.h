/* What the examples check, whatever NDEBUG is. */
#ifndef CHECK_H
#define CHECK_H

#include <freehold.h>
#include <stdio.h>
#include <stdlib.h>

/* Ends the program if a condition does not hold. */
#define CHECK(condition)                                                                  \
    do {                                                                                  \
        if (!(condition)) {                                                               \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);               \
            exit(1);                                                                      \
        }                                                                                 \
    } while (0)

/* Ends the program if a call does not return this code. */
#define EXPECT(code, call)                                                                \
    do {                                                                                  \
        freehold_error got_ = (call);                                                     \
        if (got_ != (code)) {                                                             \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call,                 \
                    freehold_strerror(got_));                                             \
            exit(1);                                                                      \
        }                                                                                 \
    } while (0)

#define OK(call) EXPECT(FREEHOLD_OK, call)

#endif
