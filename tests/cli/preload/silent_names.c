// For LD_PRELOAD: no name server answers. The file `resolving` shows that one was asked.
#include <fcntl.h>
#include <netdb.h>
#include <unistd.h>
int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **found) {
    (void)name, (void)service, (void)hints, (void)found;
    close(open("resolving", O_WRONLY | O_CREAT, 0600));
    for (;;) pause();
}
