/* What Apple's <objc/objc.h> declares, for parsing as on macOS (see
 * metal_sim.check_deployment_target). */
#ifndef SIM_OBJC_H
#define SIM_OBJC_H

typedef struct objc_class *Class;
typedef struct objc_selector *SEL;
#if __OBJC_BOOL_IS_BOOL
typedef _Bool BOOL;
#else
typedef signed char BOOL;
#endif
#define YES __objc_yes
#define NO __objc_no
#define nil ((id)0)

#endif
