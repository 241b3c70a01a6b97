// Closed- or open-loop HTTP/1.1 load generator for chat-completions endpoints, one epoll loop on loopback.
// load -p PORT -n REQUESTS -c CONCURRENCY -b BODYFILE [-u PATH] [-H 'Name: value']... [-r RATE] [-t TIMEOUT_S] [-w WARMUP]
// -r: open loop, RATE requests a second on a fixed schedule; latency counts from the scheduled instant.
// Prints one JSON line: counts, RPS, latency and first-byte percentiles (us), its own CPU.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

typedef struct {
  int fd, busy, status, chunked, sse, done_seen, usage_seen, head_done, keep;
  long long clen, got;
  size_t out_at;
  double t0, first;
  char head[16384];
  int head_n;
  char tail[64];
  int tail_n;
  long long csize;  // chunked decoder: remaining in the chunk, -1 while reading a size line
  int cstate, last_chunk;
  char cl[32];
  int cl_n;
} conn;

static int port, N = 1000, C = 1, warm = 0;
static double rate = 0, limit = 120;
static char *req;
static size_t req_n;
static int ep;
static double *lat, *fst;
static int n_done, n_ok, n_bad, n_err, started, n_nousage;
static long long bytes_in;
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1e6 + t.tv_nsec / 1e3; }
static int cmp(const void *a, const void *b) { double x = *(double *)a, y = *(double *)b; return x < y ? -1 : x > y; }

static void open_conn(conn *c) {
  int one = 1;
  c->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  if (connect(c->fd, (void *)&a, sizeof a) && errno != EINPROGRESS) { perror("connect"); exit(1); }
  struct epoll_event e = {.events = EPOLLIN | EPOLLOUT, .data.ptr = c};
  epoll_ctl(ep, EPOLL_CTL_ADD, c->fd, &e);
}
static void want(conn *c, int out) {
  struct epoll_event e = {.events = EPOLLIN | (out ? EPOLLOUT : 0), .data.ptr = c};
  epoll_ctl(ep, EPOLL_CTL_MOD, c->fd, &e);
}
static int push(conn *c) {
  while (c->out_at < req_n) {
    ssize_t w = send(c->fd, req + c->out_at, req_n - c->out_at, MSG_NOSIGNAL);
    if (w < 0) { if (errno == EAGAIN || errno == ENOTCONN || errno == EINPROGRESS) { want(c, 1); return 0; } return -1; }
    c->out_at += w;
  }
  want(c, 0);
  return 0;
}
static void begin(conn *c, double t0) {
  c->busy = 1; c->status = 0; c->chunked = c->sse = c->done_seen = c->usage_seen = c->head_done = 0;
  c->clen = -1; c->got = 0; c->out_at = 0; c->t0 = t0; c->first = 0; c->head_n = 0; c->tail_n = 0;
  c->cstate = 0; c->csize = 0; c->last_chunk = 0; c->cl_n = 0; c->keep = 1;
  started++;
  if (push(c) < 0) { close(c->fd); open_conn(c); c->out_at = 0; }
}
static void body(conn *c, const char *p, size_t n) {
  if (!n) return;
  if (!c->first) c->first = now();
  c->got += n;
  if (!c->usage_seen) {
    if (memmem(p, n, "prompt_tokens", 13)) c->usage_seen = 1;
    else {
      char x[192]; int k = c->tail_n, m = n < 64 ? n : 64;
      memcpy(x, c->tail, k); memcpy(x + k, p, m);
      if (memmem(x, k + m, "prompt_tokens", 13)) c->usage_seen = 1;
    }
  }
  if (n >= 32) { memcpy(c->tail, p + n - 32, 32); c->tail_n = 32; }
  else {
    int keep = c->tail_n + (int)n > 32 ? 32 - (int)n : c->tail_n;
    memmove(c->tail, c->tail + c->tail_n - keep, keep); memcpy(c->tail + keep, p, n); c->tail_n = keep + n;
  }
}
// returns 1 at the end of the response
static int feed(conn *c, char *p, size_t n) {
  bytes_in += n;
  if (!c->head_done) {
    size_t m = n < sizeof(c->head) - 1 - c->head_n ? n : sizeof(c->head) - 1 - c->head_n;
    memcpy(c->head + c->head_n, p, m); c->head_n += m; c->head[c->head_n] = 0;
    char *e = strstr(c->head, "\r\n\r\n");
    if (!e) return 0;
    size_t hl = e - c->head + 4, over = c->head_n - hl;
    p += n - over - (n - m); n = over + (n - m);
    *e = 0; c->head_done = 1;
    c->status = atoi(c->head + 9);
    char *h = strcasestr(c->head, "\r\ncontent-length:");
    if (h) c->clen = atoll(h + 17);
    if (strcasestr(c->head, "\r\ntransfer-encoding: chunked")) c->chunked = 1;
    if (strcasestr(c->head, "text/event-stream")) c->sse = 1;
    if (strcasestr(c->head, "\r\nconnection: close")) c->keep = 0;
  }
  if (!c->chunked) { body(c, p, n); return c->clen >= 0 && c->got >= c->clen; }
  while (n) {
    if (c->cstate == 0) {  // size line
      char ch = *p++; n--;
      if (ch == '\n') {
        c->cl[c->cl_n] = 0; c->csize = strtoll(c->cl, 0, 16); c->cl_n = 0;
        c->last_chunk = c->csize == 0; c->cstate = c->csize ? 1 : 3;
      } else if (c->cl_n < 30) c->cl[c->cl_n++] = ch;
    } else if (c->cstate == 1) {
      size_t k = n < (size_t)c->csize ? n : (size_t)c->csize;
      body(c, p, k); p += k; n -= k; c->csize -= k;
      if (!c->csize) c->cstate = 2;
    } else if (c->cstate == 2) { if (*p++ == '\n') c->cstate = 0; n--; }
    else { char ch = *p++; n--; if (ch == '\n') return 1; }
  }
  return 0;
}
static void finish(conn *c) {
  double t = now();
  int ok = c->status == 200;
  if (ok && c->sse) ok = memmem(c->tail, c->tail_n, "[DONE]", 6) != 0;
  if (!c->usage_seen) n_nousage++;
  if (ok) n_ok++; else {
    if (!n_bad) { fprintf(stderr, "bad: status %d got %lld sse %d\n%.600s\n", c->status, c->got, c->sse, c->head); }
    n_bad++;
  }
  int i = n_done++;
  lat[i] = t - c->t0; fst[i] = (c->first ? c->first : t) - c->t0;
  c->busy = 0;
}
static double pc(double *v, int n, double q) { return n ? v[(int)(q * (n - 1) + 0.5)] : 0; }

int main(int argc, char **argv) {
  char *bodyf = 0, *path = "/v1/chat/completions", hdr[4096] = "";
  int o;
  while ((o = getopt(argc, argv, "p:n:c:b:u:H:r:t:w:")) > 0) {
    if (o == 'p') port = atoi(optarg); else if (o == 'n') N = atoi(optarg); else if (o == 'c') C = atoi(optarg);
    else if (o == 'b') bodyf = optarg; else if (o == 'u') path = optarg; else if (o == 'r') rate = atof(optarg);
    else if (o == 't') limit = atof(optarg); else if (o == 'w') warm = atoi(optarg);
    else if (o == 'H') { strncat(hdr, optarg, sizeof hdr - strlen(hdr) - 3); strcat(hdr, "\r\n"); }
    else return 2;
  }
  if (!port || !bodyf) { fprintf(stderr, "need -p and -b\n"); return 2; }
  signal(SIGPIPE, SIG_IGN);
  FILE *f = fopen(bodyf, "rb");
  if (!f) { perror(bodyf); return 1; }
  static char bb[8 << 20];
  size_t bn = fread(bb, 1, sizeof bb, f);
  req = malloc(bn + 8192);
  req_n = sprintf(req, "POST %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Type: application/json\r\nAccept: */*\r\n"
                  "User-Agent: bench\r\n%sContent-Length: %zu\r\n\r\n", path, port, hdr, bn);
  memcpy(req + req_n, bb, bn); req_n += bn;
  lat = malloc(sizeof(double) * (N + 1)); fst = malloc(sizeof(double) * (N + 1));
  ep = epoll_create1(0);
  conn *cs = calloc(C, sizeof(conn));
  double t0 = now();
  for (int i = 0; i < C; i++) { open_conn(&cs[i]); if (rate <= 0 && started < N) begin(&cs[i], now()); else want(&cs[i], 0); }
  struct epoll_event ev[256];
  static char buf[262144];
  double due = t0, step = rate > 0 ? 1e6 / rate : 0;
  while (n_done + n_err < N && now() - t0 < limit * 1e6) {
    int wait = 200;
    if (rate > 0 && started < N) {
      double t = now();
      int free_left = 1;
      while (due <= t && started < N && free_left) {
        free_left = 0;
        for (int i = 0; i < C; i++) if (!cs[i].busy) { begin(&cs[i], due); due += step; free_left = 1; break; }
      }
      wait = free_left ? (due - now() > 1000 ? (int)((due - now()) / 1000) : 0) : 200;
    }
    int n = epoll_wait(ep, ev, 256, wait);
    for (int i = 0; i < n; i++) {
      conn *c = ev[i].data.ptr;
      int dead = 0, end = 0;
      if ((ev[i].events & EPOLLOUT) && c->busy && push(c) < 0) dead = 1;
      if (!dead && (ev[i].events & (EPOLLIN | EPOLLERR | EPOLLHUP))) {
        ssize_t r;
        while ((r = recv(c->fd, buf, sizeof buf, 0)) > 0) {
          if (c->busy && !end) end = feed(c, buf, r);
          if ((size_t)r < sizeof buf) break;
        }
        if (r == 0 || (r < 0 && errno != EAGAIN)) dead = 1;
      }
      if (end || (dead && c->busy && c->head_done && c->clen < 0 && !c->chunked)) {
        finish(c);
        if (dead || !c->keep) { close(c->fd); open_conn(c); }
        if (rate <= 0 && started < N) begin(c, now()); else want(c, 0);
      } else if (dead) {
        if (c->busy) {
          if (!n_err) fprintf(stderr, "err: connection lost, status %d\n", c->status);
          n_err++; c->busy = 0;
        }
        close(c->fd); open_conn(c);
        if (rate <= 0 && started < N) begin(c, now()); else want(c, 0);
      }
    }
  }
  double wall = now() - t0;
  struct rusage ru; getrusage(RUSAGE_SELF, &ru);
  double cpu = ru.ru_utime.tv_sec + ru.ru_stime.tv_sec + (ru.ru_utime.tv_usec + ru.ru_stime.tv_usec) / 1e6;
  int k = warm < n_done ? warm : 0;
  int m = n_done - k;
  qsort(lat + k, m, sizeof(double), cmp); qsort(fst + k, m, sizeof(double), cmp);
  double *L = lat + k, *F = fst + k;
  printf("{\"n\":%d,\"ok\":%d,\"bad\":%d,\"err\":%d,\"no_usage\":%d,\"wall_s\":%.4f,\"rps\":%.1f,\"p50\":%.0f,\"p90\":%.0f,\"p99\":%.0f,"
         "\"max\":%.0f,\"first50\":%.0f,\"first99\":%.0f,\"bytes_in\":%lld,\"load_cpu_s\":%.4f}\n",
         n_done, n_ok, n_bad, n_err, n_nousage, wall / 1e6, n_done / (wall / 1e6), pc(L, m, .5), pc(L, m, .9), pc(L, m, .99),
         m ? L[m - 1] : 0, pc(F, m, .5), pc(F, m, .99), bytes_in, cpu);
  return n_ok == N ? 0 : 1;
}
