// Creates the shared ring and passes it over ctl.sock.
#include "loader/protocol/ring.h"
#include "common/err.h"
#include "common/sizes.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL, PAGE = 4096, BACKLOG = 128 };

static size_t ring_bytes(const Ring *ring) { return (size_t)ring->slot_bytes * ring->slot_count; }

int ring_open(Ring *ring, bool shared, uint64_t slot_bytes, uint32_t slot_count) {
    *ring = (Ring){-1, NULL, (uint32_t)round_up(slot_bytes, PAGE), slot_count};
    size_t size = ring_bytes(ring);
    if (shared) {
        ring->fd = memfd_create("millrace-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        if (ring->fd < 0 || ftruncate(ring->fd, (off_t)size) < 0) {
            fail_errno("cannot create a ring of %zu bytes", size);
            ring_close(ring);
            return -1;
        }
    }
    void *map =
        mmap(NULL, size, PROT_READ | PROT_WRITE, shared ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, ring->fd, 0);
    if (map == MAP_FAILED || (shared && fcntl(ring->fd, F_ADD_SEALS, SEALS) < 0)) {
        fail_errno("cannot map a ring of %zu bytes", size);
        if (map != MAP_FAILED) munmap(map, size);
        ring_close(ring);
        return -1;
    }
    ring->base = map;
    memset(map, 0, size); // allocate every page now, not in the middle of a step
    return 0;
}

void ring_close(Ring *ring) {
    if (ring->base) munmap(ring->base, ring_bytes(ring));
    if (ring->base || ring->slot_count) // in a zeroed struct, fd 0 is not a descriptor of the ring
        if (ring->fd >= 0) close(ring->fd);
    *ring = (Ring){.fd = -1};
}

static int unix_socket(struct sockaddr_un *address, const char *path) {
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address->sun_path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(address->sun_path, path, strlen(path));
    return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

static int close_keeping_errno(int fd) {
    int cause = errno;
    close(fd);
    errno = cause;
    return -1;
}

static int check_peer(int fd) {
    struct ucred peer;
    socklen_t size = sizeof peer;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0) return close_keeping_errno(fd);
    if (peer.uid == geteuid()) return fd;
    errno = EACCES;
    return close_keeping_errno(fd);
}

int ctl_listen(const char *path) {
    struct sockaddr_un address;
    int fd = unix_socket(&address, path);
    if (fd < 0) return -1;
    if (unlink(path) < 0 && errno != ENOENT) return close_keeping_errno(fd);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) < 0 || listen(fd, BACKLOG) < 0)
        return close_keeping_errno(fd);
    return fd;
}

int ctl_accept(int listener) {
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    return fd < 0 ? -1 : check_peer(fd);
}

int ctl_connect(const char *path) {
    struct sockaddr_un address;
    int fd = unix_socket(&address, path);
    if (fd < 0) return -1;
    if (connect(fd, (struct sockaddr *)&address, sizeof address) < 0) return close_keeping_errno(fd);
    return check_peer(fd);
}

int ctl_send_ring(int fd, const CtlAttach *attach, const Ring *ring) {
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {{0}};
    struct iovec part = {(void *)attach, sizeof *attach};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    *header = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(header), &ring->fd, sizeof(int));
    return sendmsg(fd, &message, MSG_NOSIGNAL) == (ssize_t)sizeof *attach ? 0 : -1;
}

// Maps the descriptor; EINVAL when its size or seals do not guarantee that writing to the mapping is safe.
static int ring_map(Ring *ring, int memfd) {
    struct stat st;
    size_t size = ring_bytes(ring);
    if (fstat(memfd, &st) < 0) return -1;
    int seals = fcntl(memfd, F_GET_SEALS);
    if (seals < 0 || (seals & SEALS) != SEALS || (uint64_t)st.st_size != size) {
        errno = EINVAL;
        return -1;
    }
    void *map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
    if (map == MAP_FAILED) return -1;
    ring->base = map;
    return 0;
}

int ctl_receive_ring(int fd, CtlAttach *attach, Ring *ring) {
    enum { FDS = 4 }; // room for surplus descriptors of a hostile sender, so that they are closed below
    union {
        char bytes[CMSG_SPACE(sizeof(int) * FDS)];
        struct cmsghdr align;
    } control;
    struct iovec part = {attach, sizeof *attach};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    ssize_t got = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
    if (got < 0) return -1;
    int fds[FDS] = {-1, -1, -1, -1}, count = 0;
    for (struct cmsghdr *h = CMSG_FIRSTHDR(&message); h; h = CMSG_NXTHDR(&message, h))
        if (h->cmsg_level == SOL_SOCKET && h->cmsg_type == SCM_RIGHTS)
            for (size_t at = 0; CMSG_LEN(at + sizeof(int)) <= h->cmsg_len && count < FDS; at += sizeof(int))
                memcpy(&fds[count++], CMSG_DATA(h) + at, sizeof(int));
    *ring = (Ring){-1, NULL, attach->slot_bytes, attach->slot_count};
    int result = -1;
    bool valid = got == (ssize_t)sizeof *attach && !(message.msg_flags & (MSG_CTRUNC | MSG_TRUNC)) && count == 1 &&
                 attach->magic == WIRE_MAGIC && attach->major == WIRE_MAJOR && !attach->zero && !attach->zero2 &&
                 attach->session && attach->slot_count && attach->slot_count <= WIRE_SLOTS_MAX && attach->slot_bytes &&
                 attach->slot_bytes % PAGE == 0 && attach->slot_bytes <= WIRE_PAYLOAD_MAX;
    if (valid)
        result = ring_map(ring, fds[0]);
    else
        errno = got ? EBADMSG : ECONNRESET;
    int cause = errno;
    for (int i = 0; i < count; i++) close(fds[i]);
    errno = cause;
    return result;
}

int ctl_send_reply(int fd, const CtlReply *reply) {
    return send(fd, reply, sizeof *reply, MSG_NOSIGNAL) == (ssize_t)sizeof *reply ? 0 : -1;
}

int ctl_receive_reply(int fd, CtlReply *reply) {
    ssize_t got = recv(fd, reply, sizeof *reply, 0);
    if (got < 0) return -1;
    if (got == (ssize_t)sizeof *reply && reply->magic == WIRE_MAGIC && reply->major == WIRE_MAJOR) return 0;
    errno = got ? EBADMSG : ECONNRESET;
    return -1;
}
