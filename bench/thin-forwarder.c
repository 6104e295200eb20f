// What thin links cost at least: pairs of loopback TCP sockets; each message of 543 bytes (a cell alone in its TLS
// record) that comes from one is written to its partner. No TLS, no cells. Prints the CPU seconds of the forwarding
// process alone for 10^9 bytes of payload, 498 a message.
//
//     gcc -O2 -o thin-forwarder bench/thin-forwarder.c -luring      (Debian: liburing-dev)
//     ulimit -n 20000; ./thin-forwarder epoll|uring PAIRS MESSAGES_PER_S SECONDS [GATHER_US]
#define _GNU_SOURCE
#include <fcntl.h>
#include <liburing.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MESSAGE = 543, PAYLOAD = 498, BUFFERS = 4096, BUFFER = 4096, SEND = 1 };

static volatile sig_atomic_t stopped;
static long messages, calls, receives, turns;

static void stop(int signal) { (void)signal; stopped = 1; }

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec / 1e9;
}

static int prepared(int fd) {
  int one = 1;
  fcntl(fd, F_SETFL, O_NONBLOCK);
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  return fd;
}

static void by_epoll(const int *sockets, int count, long gather_us, int seconds) {
  static char buffer[1 << 16];
  struct epoll_event events[1024];
  int epoll = epoll_create1(0);
  for (int i = 0; i < count; i++) {
    struct epoll_event event = {EPOLLIN | EPOLLET, .data.u32 = i};
    epoll_ctl(epoll, EPOLL_CTL_ADD, sockets[i], &event);
  }
  alarm(seconds);
  for (; !stopped; turns++) {
    int ready = epoll_wait(epoll, events, 1024, 100);
    calls++;
    for (int j = 0; j < ready; j++) {
      int i = events[j].data.u32;
      ssize_t length = recv(sockets[i], buffer, sizeof buffer, 0);
      calls++;
      if (length <= 0) continue;
      receives++;
      send(sockets[i ^ 1], buffer, length, MSG_NOSIGNAL);
      calls++;
      messages += length / MESSAGE;
    }
    if (gather_us) usleep(gather_us);
  }
}

static struct io_uring_sqe *entry(struct io_uring *ring) {
  struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
  if (sqe) return sqe;
  io_uring_submit(ring);
  return io_uring_get_sqe(ring);
}

static void receive_from(struct io_uring *ring, unsigned socket) {
  struct io_uring_sqe *sqe = entry(ring);
  io_uring_prep_recv_multishot(sqe, socket, NULL, 0, 0);
  sqe->flags |= IOSQE_FIXED_FILE | IOSQE_BUFFER_SELECT;
  sqe->buf_group = 0;
  sqe->user_data = (unsigned long)socket << 1;
}

static void by_uring(const int *sockets, int count, long gather_us, int seconds) {
  struct io_uring ring;
  struct io_uring_params params = {
      .flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_CQSIZE, .cq_entries = 16384};
  int failed = io_uring_queue_init_params(4096, &ring, &params);
  if (failed < 0) {
    fprintf(stderr, "no ring: %s\n", strerror(-failed));
    exit(1);
  }
  io_uring_register_files(&ring, sockets, count);
  struct io_uring_buf_ring *buffers = aligned_alloc(4096, BUFFERS * sizeof(struct io_uring_buf));
  char *memory = malloc((size_t)BUFFERS * BUFFER);
  struct io_uring_buf_reg registered = {.ring_addr = (unsigned long)buffers, .ring_entries = BUFFERS, .bgid = 0};
  if (!buffers || !memory || io_uring_register_buf_ring(&ring, &registered, 0)) {
    fprintf(stderr, "no buffers\n");
    exit(1);
  }
  io_uring_buf_ring_init(buffers);
  int mask = io_uring_buf_ring_mask(BUFFERS);
  for (int i = 0; i < BUFFERS; i++) io_uring_buf_ring_add(buffers, memory + (size_t)i * BUFFER, BUFFER, i, mask, i);
  io_uring_buf_ring_advance(buffers, BUFFERS);
  for (int i = 0; i < count; i++) receive_from(&ring, i);
  // Gathered in the kernel, which then runs all that is due at once: a program that sleeps and asks afterwards gets
  // 20 receives a call at most, falls behind, and measures larger messages.
  struct __kernel_timespec patience = {0, gather_us ? gather_us * 1000 : 100000000};
  alarm(seconds);
  for (; !stopped; turns++) {
    struct io_uring_cqe *cqe;
    io_uring_submit_and_wait_timeout(&ring, &cqe, gather_us ? BUFFERS : 1, &patience, NULL);
    calls++;
    unsigned head, seen = 0;
    io_uring_for_each_cqe(&ring, head, cqe) {
      seen++;
      unsigned socket = cqe->user_data >> 1;
      if (cqe->user_data & SEND) {  // the buffer is free again; `socket` is its number
        io_uring_buf_ring_add(buffers, memory + (size_t)socket * BUFFER, BUFFER, socket, mask, 0);
        io_uring_buf_ring_advance(buffers, 1);
        continue;
      }
      if (cqe->res > 0) {
        unsigned number = cqe->flags >> IORING_CQE_BUFFER_SHIFT;
        receives++;
        messages += cqe->res / MESSAGE;
        struct io_uring_sqe *sqe = entry(&ring);
        io_uring_prep_send(sqe, socket ^ 1, memory + (size_t)number * BUFFER, cqe->res, MSG_NOSIGNAL);
        sqe->flags |= IOSQE_FIXED_FILE;
        sqe->user_data = (unsigned long)number << 1 | SEND;
      }
      if (!(cqe->flags & IORING_CQE_F_MORE)) receive_from(&ring, socket);
    }
    io_uring_cq_advance(&ring, seen);
  }
}

// What comes at this rate to sockets chosen at random, and what came back is read.
static void drive(const int *sockets, int count, double rate, int seconds) {
  static char message[MESSAGE], buffer[1 << 16];
  struct epoll_event events[1024];
  int epoll = epoll_create1(0);
  for (int i = 0; i < count; i++) {
    struct epoll_event event = {EPOLLIN, .data.u32 = i};
    epoll_ctl(epoll, EPOLL_CTL_ADD, sockets[i], &event);
  }
  unsigned random = 12345;
  double begun = now(), sent = 0;
  while (now() - begun < seconds) {
    int burst = 0;
    for (double due = (now() - begun) * rate; sent < due && burst < 200; sent++, burst++) {
      random = random * 1664525u + 1013904223u;
      send(sockets[(random >> 8) % count], message, MESSAGE, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    int ready = epoll_wait(epoll, events, 1024, 0);
    for (int j = 0; j < ready; j++) recv(sockets[events[j].data.u32], buffer, sizeof buffer, MSG_DONTWAIT);
    if (burst < 20) usleep(200);
  }
}

int main(int argc, char **argv) {
  if (argc < 5) {
    fprintf(stderr, "usage: %s epoll|uring PAIRS MESSAGES_PER_S SECONDS [GATHER_US]\n", argv[0]);
    return 2;
  }
  int count = 2 * atoi(argv[2]), seconds = atoi(argv[4]);
  double rate = atof(argv[3]);
  long gather_us = argc > 5 ? atol(argv[5]) : 0;
  int listener = socket(AF_INET, SOCK_STREAM, 0);
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t length = sizeof address;
  bind(listener, (void *)&address, sizeof address);
  getsockname(listener, (void *)&address, &length);
  listen(listener, 4096);
  int *ours = malloc(count * sizeof(int)), *theirs = malloc(count * sizeof(int));
  for (int i = 0; i < count; i++) {
    theirs[i] = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(theirs[i], (void *)&address, sizeof address)) {
      perror("connect");
      return 1;
    }
    ours[i] = prepared(accept(listener, 0, 0));
    prepared(theirs[i]);
  }
  if (fork() == 0) {
    struct sigaction action = {.sa_handler = stop};
    sigaction(SIGALRM, &action, NULL);
    if (strcmp(argv[1], "epoll") == 0) by_epoll(ours, count, gather_us, seconds);
    else by_uring(ours, count, gather_us, seconds);
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    double cpu = usage.ru_utime.tv_sec + usage.ru_stime.tv_sec + (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
    printf("%-5s %d pairs: %.0f messages/s, %.2f s/GB; %.2f system calls and %.2f receives for each message, %.0f turns/s\n",
           argv[1], count / 2, messages / (double)seconds, cpu / (messages * PAYLOAD / 1e9), calls / (double)messages,
           receives / (double)messages, turns / (double)seconds);
    return 0;
  }
  for (int i = 0; i < count; i++) close(ours[i]);
  drive(theirs, count, rate, seconds + 1);
  wait(NULL);
  return 0;
}
