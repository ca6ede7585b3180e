/* A mass on a spring hits a stop: prints the peak force, simulated in time. */
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: spring STIFFNESS STEPS\n");
        return 2;
    }
    double stiffness = atof(argv[1]), x = 0.0, v = 1.0, peak = 0.0;
    char *end;
    long steps = strtol(argv[2], &end, 10);
    if (*end) {
        fprintf(stderr, "STEPS must be an integer, got %s\n", argv[2]);
        return 2;
    }
    double dt = 4.0 / steps;
    for (long i = 0; i < steps; i++) { /* leapfrog */
        v -= stiffness * x * dt;
        x += v * dt;
        if (stiffness * x > peak)
            peak = stiffness * x;
    }
    printf("steps: %ld\npeak force: %.17g N\n", steps, peak);
    return 0;
}
