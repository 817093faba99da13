/* A libnvidia-ml.so.1 without a GPU: what a driver would answer stands in the file that $NVML_STUB_CONFIG names.
 *
 * Compiled against NVIDIA's own nvml.h, so that every signature and struct is the real one, and loaded by the real
 * nvidia-ml-py, nvitop and gpustat. tests/real/nvml.py builds it, writes the file and tells what its lines mean.
 * Memory and rows of a process go when the REAL process of that pid is dead, after a delay that the file names.
 *
 * It aborts on a handle that it never gave out: the real library crashes on those.
 */
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <nvml.h>

#define GPUS 16
#define SLICES 8 /* MIG instances of one GPU */
#define NOT_AVAILABLE (~0ULL)
#define ALL (-1)
#define COUNTED 96
#define REFRESH_MS 10
#define YOUNG_MS 60 /* a folder that changed so lately may change again within one tick of its clock */

struct slice { int there, number; char uuid[96], name[96]; unsigned long long total, base; };

struct gpu {
    int there, absent, lost;
    char name[96], uuid[96], bus_id[32];
    unsigned long long total, reserved, base, ghost, ecc, events;
    int capability; /* 90 is 9.0 */
    int unified, mig, util, memory_util, temperature, minor, persistence, garbage, phantoms;
    unsigned power, limit, sm_clock, sm_clock_max, memory_clock;
    struct slice slice[SLICES];
};

struct process { /* a row of the lists */
    int gpu, slice, sm, tied, listed, live;
    unsigned pid, heir;
    char types[8];
    unsigned long long bytes, told, ticks;
    double died;
};

struct rule { char function[72]; int gpu, slice, code, after, deaf, hang; double seconds; };
struct event { int gpu, serial; unsigned long long code; };
struct tally { char name[64]; unsigned long long calls; };
struct handle { int gpu, slice; };

static struct gpu gpus[GPUS];
static struct process *rows;
static int row_count, row_space;
static struct rule rules[64];
static int rule_count;
static struct event events[64];
static int event_count, event_serial;
static char driver_version[80], nvml_version[80], banner_load[256], banner_init[256], count_file[512], claims[512];
static int init_code, init_until, cuda_version;
static double latency_s, list_delay_s, release_delay_s;

static struct tally private_tallies[COUNTED], *tallies = private_tallies;
static int tally_count;
static struct handle handles[GPUS][SLICES + 1];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static void pause_s(double seconds) {
    struct timespec t = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    while (nanosleep(&t, &t) != 0) {}
}

/* ------------------------------------------------------------------------------------------- the file */

static void set_text(char *to, size_t space, const char *from) { snprintf(to, space, "%s", from); }

static void add_row(struct process row, const struct process *old, int old_count) {
    for (int i = 0; i < old_count; i++) /* what was seen of it stays known */
        if (old[i].gpu == row.gpu && old[i].slice == row.slice && old[i].pid == row.pid && old[i].heir == row.heir) {
            row.ticks = old[i].ticks;
            row.died = old[i].died;
            row.live = old[i].live;
        }
    if (row_count == row_space) {
        row_space = row_space ? row_space * 2 : 64;
        rows = realloc(rows, row_space * sizeof *rows);
    }
    rows[row_count++] = row;
}

static void set_gpu(struct gpu *g, const char *key, const char *value) {
    unsigned long long number = strtoull(value, NULL, 10);
    if (!strcmp(key, "name")) set_text(g->name, sizeof g->name, value);
    else if (!strcmp(key, "uuid")) set_text(g->uuid, sizeof g->uuid, value);
    else if (!strcmp(key, "bus_id")) set_text(g->bus_id, sizeof g->bus_id, value);
    else if (!strcmp(key, "total")) g->total = number;
    else if (!strcmp(key, "reserved")) g->reserved = number;
    else if (!strcmp(key, "base")) g->base = number;
    else if (!strcmp(key, "ghost")) g->ghost = number;
    else if (!strcmp(key, "ecc")) g->ecc = number;
    else if (!strcmp(key, "events")) g->events = number;
    else if (!strcmp(key, "unified")) g->unified = (int)number;
    else if (!strcmp(key, "capability")) g->capability = (int)number;
    else if (!strcmp(key, "absent")) g->absent = (int)number;
    else if (!strcmp(key, "lost")) g->lost = (int)number;
    else if (!strcmp(key, "mig")) g->mig = (int)number;
    else if (!strcmp(key, "util")) g->util = (int)number;
    else if (!strcmp(key, "memory_util")) g->memory_util = (int)number;
    else if (!strcmp(key, "temperature")) g->temperature = (int)number;
    else if (!strcmp(key, "minor")) g->minor = (int)number;
    else if (!strcmp(key, "persistence")) g->persistence = (int)number;
    else if (!strcmp(key, "garbage")) g->garbage = (int)number;
    else if (!strcmp(key, "phantoms")) g->phantoms = (int)number;
    else if (!strcmp(key, "power")) g->power = (unsigned)number;
    else if (!strcmp(key, "limit")) g->limit = (unsigned)number;
    else if (!strcmp(key, "sm_clock")) g->sm_clock = (unsigned)number;
    else if (!strcmp(key, "sm_clock_max")) g->sm_clock_max = (unsigned)number;
    else if (!strcmp(key, "memory_clock")) g->memory_clock = (unsigned)number;
    else { fprintf(stderr, "nvml stub: no such key of a GPU: %s\n", key); abort(); }
}

static void set_option(const char *key, const char *value) {
    if (!strcmp(key, "driver_version")) set_text(driver_version, sizeof driver_version, value);
    else if (!strcmp(key, "nvml_version")) set_text(nvml_version, sizeof nvml_version, value);
    else if (!strcmp(key, "cuda_version")) cuda_version = atoi(value);
    else if (!strcmp(key, "banner_load")) set_text(banner_load, sizeof banner_load, value);
    else if (!strcmp(key, "banner_init")) set_text(banner_init, sizeof banner_init, value);
    else if (!strcmp(key, "count_file")) set_text(count_file, sizeof count_file, value);
    else if (!strcmp(key, "claims")) set_text(claims, sizeof claims, value);
    else if (!strcmp(key, "init_code")) init_code = atoi(value);
    else if (!strcmp(key, "init_until")) init_until = atoi(value);
    else if (!strcmp(key, "latency_us")) latency_s = atof(value) / 1e6;
    else if (!strcmp(key, "list_delay_ms")) list_delay_s = atof(value) / 1e3;
    else if (!strcmp(key, "release_delay_ms")) release_delay_s = atof(value) / 1e3;
    else { fprintf(stderr, "nvml stub: no such option: %s\n", key); abort(); }
}

static void target(const char *word, int *gpu, int *slice) { /* "*", "3" (the GPU itself) or "3.1" (its instance) */
    *gpu = *slice = ALL;
    if (*word == '*') return;
    *gpu = atoi(word);
    const char *dot = strchr(word, '.');
    if (dot) *slice = atoi(dot + 1);
}

static void read_line(char *line, const struct process *old, int old_count) {
    char a[72], b[80], c[32], d[32], e[32];
    int index, offset = 0;
    struct process row = {.slice = ALL, .sm = ALL, .tied = 1, .listed = 1, .live = 1};
    line[strcspn(line, "\r\n")] = 0;
    if (!*line || *line == '#') return;
    if (sscanf(line, "gpu %d %31s %n", &index, c, &offset) == 2 && index >= 0 && index < GPUS) {
        gpus[index].there = 1;
        set_gpu(&gpus[index], c, line + offset);
    } else if (sscanf(line, "option %31s %n", c, &offset) == 1) {
        set_option(c, line + offset);
    } else if (sscanf(line, "mig %d %d %95s %31s %31s %n", &index, &row.slice, b, c, d, &offset) == 5 &&
               index >= 0 && index < GPUS && row.slice >= 0 && row.slice < SLICES) {
        struct slice *s = &gpus[index].slice[row.slice];
        s->there = 1;
        s->number = row.slice;
        set_text(s->uuid, sizeof s->uuid, b);
        s->total = strtoull(c, NULL, 10);
        s->base = strtoull(d, NULL, 10);
        set_text(s->name, sizeof s->name, line + offset);
    } else if (sscanf(line, "proc %31s %u %7s %31s %d %d %31s %d", c, &row.pid, row.types, d, &row.sm, &row.tied, e,
                      &row.listed) >= 4) {
        int words = sscanf(line, "proc %*s %*s %*s %*s %*s %*s %31s", e);
        target(c, &row.gpu, &row.slice);
        row.bytes = strtoull(d, NULL, 10);
        row.told = words != 1 || !strcmp(e, "all") ? row.bytes : !strcmp(e, "NA") ? NOT_AVAILABLE : strtoull(e, NULL, 10);
        add_row(row, old, old_count);
    } else if (sscanf(line, "heir %31s %u %31s %u %d", c, &row.pid, d, &row.heir, &row.listed) == 5) {
        target(c, &row.gpu, &row.slice); /* memory of a dead pid, until that living one is gone */
        row.bytes = row.told = strtoull(d, NULL, 10);
        strcpy(row.types, "C");
        add_row(row, old, old_count);
    } else if (sscanf(line, "fail %71s %31s %31s %31s", a, c, d, e) == 4 && rule_count < 64) {
        struct rule *r = &rules[rule_count++];
        memset(r, 0, sizeof *r);
        set_text(r->function, sizeof r->function, a);
        target(c, &r->gpu, &r->slice);
        r->code = atoi(d);
        r->after = atoi(e);
    } else if (sscanf(line, "hang %71s %31s %31s %31s", a, c, d, e) == 4 && rule_count < 64) {
        struct rule *r = &rules[rule_count++];
        memset(r, 0, sizeof *r);
        r->hang = 1;
        set_text(r->function, sizeof r->function, a);
        target(c, &r->gpu, &r->slice);
        r->seconds = strcmp(d, "forever") ? atof(d) : -1;
        r->deaf = atoi(e);
    } else if (sscanf(line, "xid %d %31s %d", &index, c, &offset) == 3 && event_count < 64) {
        events[event_count++] = (struct event){index, offset, strtoull(c, NULL, 10)};
    } else {
        fprintf(stderr, "nvml stub: this line means nothing: %s\n", line);
        abort();
    }
}

static void read_file(const char *path, const struct process *old, int old_count) {
    char line[1024];
    FILE *file = fopen(path, "r");
    if (!file) return;
    while (fgets(line, sizeof line, file)) read_line(line, old, old_count);
    fclose(file);
}

static void defaults(void) {
    memset(gpus, 0, sizeof gpus);
    rule_count = event_count = init_code = init_until = 0;
    *banner_load = *banner_init = *count_file = *claims = 0;
    latency_s = list_delay_s = release_delay_s = 0;
    cuda_version = 13000;
    strcpy(driver_version, "580.95.05");
    strcpy(nvml_version, "13.580.95.05");
    if (getenv("NVML_STUB_CONFIG")) return;
    for (int i = 0; i < 2; i++) {
        struct gpu *g = &gpus[i];
        g->there = g->persistence = 1;
        g->total = 80ULL << 30;
        g->reserved = 500ULL << 20;
        g->base = 1ULL << 30;
        g->minor = i;
        g->capability = 90;
        g->mig = ALL;
        g->temperature = 40 + i;
        g->power = 120000;
        g->limit = 700000;
        g->sm_clock = g->sm_clock_max = 1980;
        g->memory_clock = 2619;
        strcpy(g->name, "NVIDIA H100 80GB HBM3 (stub)");
        snprintf(g->uuid, sizeof g->uuid, "GPU-00000000-0000-0000-0000-%012d", i);
        snprintf(g->bus_id, sizeof g->bus_id, "00000000:%02X:00.0", 0x10 + i);
    }
}

struct seen { dev_t device; ino_t inode; struct timespec changed; off_t size; };

static int changed(const char *path, struct seen *seen, int young) { /* or, if asked, changed too lately to be sure */
    struct stat s;
    struct timespec t;
    if (stat(path, &s) != 0) memset(&s, 0, sizeof s);
    int same = s.st_dev == seen->device && s.st_ino == seen->inode && s.st_size == seen->size &&
               !memcmp(&s.st_ctim, &seen->changed, sizeof s.st_ctim);
    seen->device = s.st_dev;
    seen->inode = s.st_ino;
    seen->size = s.st_size;
    seen->changed = s.st_ctim;
    if (!same || !young) return !same;
    clock_gettime(CLOCK_REALTIME, &t);
    return (t.tv_sec - s.st_ctim.tv_sec) + (t.tv_nsec - s.st_ctim.tv_nsec) / 1e9 < YOUNG_MS / 1e3;
}

static void read_config(void) {
    static struct seen file_seen, claims_seen;
    static int read_before;
    const char *path = getenv("NVML_STUB_CONFIG");
    int fresh = path && changed(path, &file_seen, 0);
    if (*claims && changed(claims, &claims_seen, 1)) fresh = 1;
    if (read_before && !fresh) return;
    read_before = 1;
    struct process *old = rows;
    int old_count = row_count;
    rows = NULL;
    row_count = row_space = 0;
    defaults();
    if (path) read_file(path, old, old_count);
    DIR *folder = *claims ? opendir(claims) : NULL;
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        char name[1024];
        if (entry->d_name[0] == '.') continue; /* not finished: a claim is written beside and renamed */
        snprintf(name, sizeof name, "%s/%s", claims, entry->d_name);
        read_file(name, old, old_count);
    }
    if (folder) closedir(folder);
    free(old);
}

/* ------------------------------------------------------------------------------------------- who lives */

static int lives(unsigned pid, unsigned long long *ticks) {
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%u/stat", pid);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    ssize_t size = read(file, text, sizeof text - 1);
    close(file);
    if (size <= 0) return 0;
    text[size] = 0;
    char state, *end = strrchr(text, ')');
    long threads;
    unsigned long long started;
    if (!end || sscanf(end + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %ld %*d %llu", &state,
                       &threads, &started) != 3)
        return 0;
    if (*ticks == 0) *ticks = started;
    if (*ticks != started) return 0; /* the pid was given to somebody else */
    return state != 'X' && (state != 'Z' || threads > 1); /* a dead leader's threads hold what it held */
}

static void look_who_lives(void) {
    static double last;
    double now = now_s();
    if (now - last < REFRESH_MS / 1e3) return;
    last = now;
    for (int i = 0; i < row_count; i++) {
        struct process *row = &rows[i];
        if (!row->live || (!row->tied && !row->heir)) continue;
        row->live = lives(row->heir ? row->heir : row->pid, &row->ticks);
        if (!row->live) row->died = now;
    }
}

static int in_list(const struct process *row) { return row->live || now_s() < row->died + list_delay_s; }
static int in_memory(const struct process *row) { return row->live || now_s() < row->died + release_delay_s; }

/* ------------------------------------------------------------------------------------------- every call */

static void count_into_file(void) {
    char path[560];
    if (!*count_file || tallies != private_tallies) return;
    snprintf(path, sizeof path, "%s.%d", count_file, getpid());
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0) return;
    if (ftruncate(file, sizeof private_tallies) == 0) {
        void *shared = mmap(NULL, sizeof private_tallies, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (shared != MAP_FAILED) {
            memcpy(shared, private_tallies, sizeof private_tallies);
            tallies = shared;
        }
    }
    close(file);
}

static int count_call(const char *function, int *place) {
    if (*place == 0 && tally_count < COUNTED) {
        *place = ++tally_count;
        set_text(tallies[*place - 1].name, sizeof tallies->name, function);
    }
    return *place ? (int)++tallies[*place - 1].calls : 0;
}

static struct rule *rule_of(const char *function, const struct handle *h, int hang) {
    for (int i = 0; i < rule_count; i++) {
        struct rule *r = &rules[i];
        if (r->hang != hang || (strcmp(r->function, function) && strcmp(r->function, "*"))) continue;
        if (r->gpu == ALL || (h && h->gpu == r->gpu && h->slice == r->slice)) return r;
    }
    return NULL;
}

static void hang(const char *function, const struct handle *h) {
    struct rule *r = rule_of(function, h, 1);
    if (!r) return;
    double end = r->seconds < 0 ? -1 : now_s() + r->seconds;
    if (r->deaf) signal(SIGTERM, SIG_IGN); /* as a call in state D */
    while (r && (end < 0 || now_s() < end)) {
        pthread_mutex_unlock(&lock);
        pause_s(0.01);
        pthread_mutex_lock(&lock);
        read_config();
        r = rule_of(function, h, 1);
    }
}

static const struct handle *known(nvmlDevice_t device) {
    const struct handle *h = (const struct handle *)device;
    if (h < &handles[0][0] || h > &handles[GPUS - 1][SLICES]) {
        fprintf(stderr, "nvml stub: a handle that was never given out: the real library crashes here\n");
        abort();
    }
    return h;
}

/* Takes the lock, which `release` gives back at the end of the caller's scope, and says what the call must fail with. */
static nvmlReturn_t enter(const char *function, int *place, const struct handle *h) {
    pthread_mutex_lock(&lock);
    read_config();
    count_into_file();
    int calls = count_call(function, place);
    if (latency_s > 0) {
        pthread_mutex_unlock(&lock);
        pause_s(latency_s);
        pthread_mutex_lock(&lock);
    }
    hang(function, h);
    look_who_lives();
    struct rule *r = rule_of(function, h, 0);
    if (r && calls > r->after) return r->code;
    if (h && (gpus[h->gpu].lost || gpus[h->gpu].absent || !gpus[h->gpu].there)) return NVML_ERROR_GPU_IS_LOST;
    return NVML_SUCCESS;
}

static void release(const int *unused) { (void)unused; pthread_mutex_unlock(&lock); }

#define ENTER(handle) \
    static int place; \
    __attribute__((cleanup(release))) int entered = enter(__func__, &place, handle); \
    if (entered) return entered
#define ENTER_DEVICE \
    const struct handle *h = known(device); \
    ENTER(h); \
    struct gpu *g = &gpus[h->gpu]; \
    (void)g
#define SIMPLE(function, type, expression) \
    nvmlReturn_t function(nvmlDevice_t device, type *value) { ENTER_DEVICE; *value = expression; return NVML_SUCCESS; }
#define REFUSED(function, ...) \
    nvmlReturn_t function(nvmlDevice_t device, __VA_ARGS__) { ENTER_DEVICE; return NVML_ERROR_NOT_SUPPORTED; }

static void say(const char *banner) {
    if (*banner) {
        puts(banner);
        fflush(stdout);
    }
}

__attribute__((constructor)) static void loaded(void) {
    for (int i = 0; i < GPUS; i++)
        for (int j = 0; j <= SLICES; j++) handles[i][j] = (struct handle){i, j == SLICES ? ALL : j};
    read_config();
    say(banner_load);
}

/* ------------------------------------------------------------------------------------------- the system */

nvmlReturn_t nvmlInitWithFlags(unsigned int flags) {
    ENTER(NULL);
    say(banner_init);
    if (init_code && (init_until == 0 || (int)tallies[place - 1].calls <= init_until)) return init_code;
    return NVML_SUCCESS;
}
nvmlReturn_t nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
nvmlReturn_t nvmlShutdown(void) { ENTER(NULL); return NVML_SUCCESS; }
const char *nvmlErrorString(nvmlReturn_t result) {
    return result == NVML_SUCCESS ? "Success" : result == NVML_ERROR_ARGUMENT_VERSION_MISMATCH ? "Version Mismatch" : "Stub";
}
nvmlReturn_t nvmlSystemGetDriverVersion(char *text, unsigned int n) {
    ENTER(NULL);
    snprintf(text, n, "%s", driver_version);
    return NVML_SUCCESS;
}
nvmlReturn_t nvmlSystemGetNVMLVersion(char *text, unsigned int n) {
    ENTER(NULL);
    snprintf(text, n, "%s", nvml_version);
    return NVML_SUCCESS;
}
nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *value) { ENTER(NULL); *value = cuda_version; return NVML_SUCCESS; }
nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *value) { ENTER(NULL); *value = cuda_version; return NVML_SUCCESS; }
nvmlReturn_t nvmlSystemGetProcessName(unsigned int pid, char *text, unsigned int n) {
    ENTER(NULL);
    snprintf(text, n, "stub-process-%u", pid);
    return NVML_SUCCESS;
}

/* ------------------------------------------------------------------------------------------- who is there */

static int place_of(unsigned int index) { /* a GPU that fell off is in no list, and the others close up */
    for (int i = 0; i < GPUS; i++)
        if (gpus[i].there && !gpus[i].absent && index-- == 0) return i;
    return ALL;
}
nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count) {
    ENTER(NULL);
    for (*count = 0; place_of(*count) != ALL; (*count)++) {}
    return NVML_SUCCESS;
}
static nvmlReturn_t give(int i, nvmlDevice_t *device, int *place, const char *function) {
    if (i == ALL) return NVML_ERROR_NOT_FOUND;
    struct rule *r = rule_of(function, &handles[i][SLICES], 0);
    if (r && (int)tallies[*place - 1].calls > r->after) return r->code;
    if (gpus[i].lost > 1) return NVML_ERROR_GPU_IS_LOST; /* lost 1: the handle is still given, every call fails */
    *device = (nvmlDevice_t)&handles[i][SLICES];
    return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device) {
    ENTER(NULL);
    return place_of(index) == ALL ? NVML_ERROR_INVALID_ARGUMENT : give(place_of(index), device, &place, __func__);
}
nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
    ENTER(NULL);
    for (int i = 0; i < GPUS; i++)
        if (gpus[i].there && !gpus[i].absent && !strcmp(gpus[i].uuid, uuid)) return give(i, device, &place, __func__);
    return NVML_ERROR_NOT_FOUND;
}
nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *device) {
    ENTER(NULL);
    for (int i = 0; i < GPUS; i++)
        if (gpus[i].there && !gpus[i].absent && !strcasecmp(gpus[i].bus_id, bus_id))
            return give(i, device, &place, __func__);
    return NVML_ERROR_NOT_FOUND;
}
nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index) {
    ENTER_DEVICE;
    for (*index = 0; place_of(*index) != ALL && place_of(*index) != h->gpu; (*index)++) {}
    return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *text, unsigned int n) {
    ENTER_DEVICE;
    snprintf(text, n, "%s", h->slice == ALL ? g->name : g->slice[h->slice].name);
    return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *text, unsigned int n) {
    ENTER_DEVICE;
    snprintf(text, n, "%s", h->slice == ALL ? g->uuid : g->slice[h->slice].uuid);
    return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci) {
    ENTER_DEVICE;
    memset(pci, 0, sizeof *pci);
    sscanf(g->bus_id, "%x:%x:%x", &pci->domain, &pci->bus, &pci->device);
    snprintf(pci->busId, sizeof pci->busId, "%s", g->bus_id);
    snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "%04x:%02x:%02x.0", pci->domain & 0xffff, pci->bus & 0xff,
             pci->device & 0xff);
    return NVML_SUCCESS;
}
SIMPLE(nvmlDeviceGetMinorNumber, unsigned int, (unsigned)g->minor)
SIMPLE(nvmlDeviceGetArchitecture, nvmlDeviceArchitecture_t, NVML_DEVICE_ARCH_HOPPER)
nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor) {
    ENTER_DEVICE;
    *major = g->capability / 10;
    *minor = g->capability % 10;
    return NVML_SUCCESS;
}

/* ------------------------------------------------------------------------------------------- memory */

static unsigned long long used_by(const struct handle *h) {
    struct gpu *g = &gpus[h->gpu];
    unsigned long long sum = h->slice == ALL ? g->base + g->ghost : g->slice[h->slice].base;
    if (h->slice == ALL)
        for (int i = 0; i < SLICES; i++) sum += g->slice[i].base;
    for (int i = 0; i < row_count; i++) {
        struct process *row = &rows[i];
        if (row->gpu != h->gpu || (h->slice != ALL && row->slice != h->slice) || !in_memory(row)) continue;
        int twice = 0; /* a pid in two rows (C and G) holds its memory once */
        for (int j = 0; j < i; j++)
            twice |= rows[j].gpu == row->gpu && rows[j].pid == row->pid && rows[j].slice == row->slice;
        if (!twice) sum += row->bytes;
    }
    return sum;
}
static unsigned long long less(unsigned long long a, unsigned long long b) { return a > b ? a - b : 0; }
nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
    ENTER_DEVICE;
    if (g->unified == 1) return NVML_ERROR_NOT_SUPPORTED;
    memory->total = h->slice == ALL ? g->total : g->slice[h->slice].total;
    memory->used = used_by(h) + (h->slice == ALL ? g->reserved : 0); /* version 1 counts the driver's own too */
    memory->free = less(memory->total, memory->used);
    return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory) {
    ENTER_DEVICE;
    if (memory->version != nvmlMemory_v2) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (g->unified == 1) return NVML_ERROR_NOT_SUPPORTED;
    memory->total = h->slice == ALL ? g->total : g->slice[h->slice].total;
    memory->reserved = h->slice == ALL ? g->reserved : 0;
    memory->used = used_by(h);
    memory->free = less(memory->total, memory->used + memory->reserved);
    return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *memory) {
    ENTER_DEVICE;
    memory->bar1Total = 128ULL << 30;
    memory->bar1Used = 1 << 20;
    memory->bar1Free = memory->bar1Total - memory->bar1Used;
    return NVML_SUCCESS;
}

/* ------------------------------------------------------------------------------------------- processes */

static nvmlReturn_t list(const struct handle *h, char type, unsigned int *count, nvmlProcessInfo_t *infos, int v3) {
    struct gpu *g = &gpus[h->gpu];
    unsigned int n = 0, space = *count;
    size_t stride = v3 && g->garbage ? 32 : sizeof *infos; /* drivers 535.43 to 535.86 wrote rows of another layout */
    for (int i = 0; i < row_count; i++) {
        struct process *row = &rows[i];
        if (row->gpu != h->gpu || (h->slice != ALL && row->slice != h->slice) || !row->listed) continue;
        if (!strchr(row->types, type) || !in_list(row)) continue;
        if (infos && n < space) {
            nvmlProcessInfo_t info = {row->pid, row->told, row->slice == ALL ? ~0U : (unsigned)row->slice + 1,
                                      row->slice == ALL ? ~0U : 0};
            char *to = (char *)infos + n * stride;
            memcpy(to, &info, sizeof info);
            if (stride > sizeof info) memset(to + sizeof info, 0, stride - sizeof info);
        }
        n++;
    }
    *count = n;
    return n && (!infos || n > space) ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}
#define LIST(function, type, v3) \
    nvmlReturn_t function(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *infos) { \
        ENTER_DEVICE; \
        return list(h, type, count, infos, v3); \
    }
LIST(nvmlDeviceGetComputeRunningProcesses_v3, 'C', 1)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, 'G', 1)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, 'M', 1)
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t, unsigned int *, nvmlProcessInfo_v2_t *);
nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v2(nvmlDevice_t, unsigned int *, nvmlProcessInfo_v2_t *);
nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v2(nvmlDevice_t, unsigned int *, nvmlProcessInfo_v2_t *);
LIST(nvmlDeviceGetComputeRunningProcesses_v2, 'C', 0)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, 'G', 0)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2, 'M', 0)

nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *samples,
                                             unsigned int *count, unsigned long long since) {
    ENTER_DEVICE;
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    unsigned int n = 0, space = *count;
    for (int i = 0; i < row_count + (g->phantoms > 0 ? g->phantoms : 0); i++) {
        nvmlProcessUtilizationSample_t s = {0};
        if (i < row_count) {
            struct process *row = &rows[i];
            if (row->gpu != h->gpu || row->sm < 0 || !row->listed || !in_list(row)) continue;
            s.pid = row->pid;
            s.smUtil = (unsigned)row->sm;
        } else {
            s.pid = 4000000u + (unsigned)i; /* nobody */
            s.smUtil = 4000000000u;
        }
        s.memUtil = s.smUtil / 2;
        s.timeStamp = (unsigned long long)t.tv_sec * 1000000 + (unsigned long long)t.tv_nsec / 1000;
        if (s.timeStamp <= since) continue;
        if (samples && n < space) samples[n] = s;
        n++;
    }
    *count = n;
    if (n == 0) return g->phantoms < 0 ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
    return !samples || n > space ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

/* ------------------------------------------------------------------------------------------- figures */

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates) {
    ENTER_DEVICE;
    if (g->util < 0 || h->slice != ALL) return NVML_ERROR_NOT_SUPPORTED;
    rates->gpu = (unsigned)g->util;
    rates->memory = (unsigned)g->memory_util;
    return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t sensor, unsigned int *value) {
    ENTER_DEVICE;
    *value = (unsigned)g->temperature;
    return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_t *value) {
    ENTER_DEVICE;
    if (value->version != nvmlTemperature_v1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    value->temperature = g->temperature;
    return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t device, nvmlTemperatureThresholds_t kind, unsigned int *value) {
    ENTER_DEVICE;
    *value = 90;
    return NVML_SUCCESS;
}
SIMPLE(nvmlDeviceGetPowerUsage, unsigned int, g->power)
SIMPLE(nvmlDeviceGetPowerManagementLimit, unsigned int, g->limit)
SIMPLE(nvmlDeviceGetEnforcedPowerLimit, unsigned int, g->limit)
SIMPLE(nvmlDeviceGetPersistenceMode, nvmlEnableState_t, g->persistence ? 1 : 0)
SIMPLE(nvmlDeviceGetDisplayActive, nvmlEnableState_t, 0)
SIMPLE(nvmlDeviceGetDisplayMode, nvmlEnableState_t, 0)
SIMPLE(nvmlDeviceGetPerformanceState, nvmlPstates_t, 0)
SIMPLE(nvmlDeviceGetComputeMode, nvmlComputeMode_t, 0)
SIMPLE(nvmlDeviceGetCurrentClocksEventReasons, unsigned long long, g->events)
SIMPLE(nvmlDeviceGetCurrentClocksThrottleReasons, unsigned long long, g->events)
SIMPLE(nvmlDeviceGetCurrPcieLinkGeneration, unsigned int, 5)
SIMPLE(nvmlDeviceGetCurrPcieLinkWidth, unsigned int, 16)
REFUSED(nvmlDeviceGetFanSpeed, unsigned int *value)
REFUSED(nvmlDeviceGetNumFans, unsigned int *value)
REFUSED(nvmlDeviceGetDriverModel_v2, nvmlDriverModel_t *current, nvmlDriverModel_t *pending)
REFUSED(nvmlDeviceGetFieldValues, int count, nvmlFieldValue_t *values)
nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned int *value) {
    ENTER_DEVICE;
    *value = type == NVML_CLOCK_MEM ? g->memory_clock : g->sm_clock;
    return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned int *value) {
    ENTER_DEVICE;
    *value = type == NVML_CLOCK_MEM ? g->memory_clock : g->sm_clock_max;
    return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, nvmlMemoryErrorType_t type, nvmlEccCounterType_t kind,
                                         unsigned long long *count) {
    ENTER_DEVICE;
    *count = type == NVML_MEMORY_ERROR_TYPE_UNCORRECTED ? g->ecc : 0;
    return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, nvmlEnableState_t *current, nvmlEnableState_t *pending) {
    ENTER_DEVICE;
    *current = *pending = 1;
    return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetEncoderUtilization(nvmlDevice_t device, unsigned int *value, unsigned int *period) {
    ENTER_DEVICE;
    *value = 0;
    *period = 100000;
    return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetDecoderUtilization(nvmlDevice_t device, unsigned int *value, unsigned int *period) {
    ENTER_DEVICE;
    *value = 0;
    *period = 100000;
    return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetPcieThroughput(nvmlDevice_t device, nvmlPcieUtilCounter_t counter, unsigned int *value) {
    ENTER_DEVICE;
    *value = 1000;
    return NVML_SUCCESS;
}

/* ------------------------------------------------------------------------------------------- MIG */

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending) {
    ENTER_DEVICE;
    if (g->mig < 0) return NVML_ERROR_NOT_SUPPORTED; /* a GPU that cannot be divided */
    *current = *pending = (unsigned)g->mig;
    return NVML_SUCCESS;
}
SIMPLE(nvmlDeviceIsMigDeviceHandle, unsigned int, h->slice != ALL)
SIMPLE(nvmlDeviceGetMaxMigDeviceCount, unsigned int, g->mig > 0 ? SLICES : 0)
SIMPLE(nvmlDeviceGetGpuInstanceId, unsigned int, h->slice == ALL ? ~0U : (unsigned)h->slice + 1)
SIMPLE(nvmlDeviceGetComputeInstanceId, unsigned int, h->slice == ALL ? ~0U : 0)
nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index, nvmlDevice_t *instance) {
    ENTER_DEVICE;
    if (index >= SLICES || !g->slice[index].there) return NVML_ERROR_NOT_FOUND;
    *instance = (nvmlDevice_t)&handles[h->gpu][index];
    return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t device, nvmlDevice_t *parent) {
    ENTER_DEVICE;
    *parent = (nvmlDevice_t)&handles[h->gpu][SLICES];
    return NVML_SUCCESS;
}

/* ------------------------------------------------------------------------------------------- XID events */

static unsigned watched; /* one set is all that anybody makes */
nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set) {
    ENTER(NULL);
    *set = (nvmlEventSet_t)&watched;
    return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, nvmlEventSet_t set) {
    ENTER_DEVICE;
    if (types & nvmlEventTypeXidCriticalError) watched |= 1U << h->gpu;
    return NVML_SUCCESS;
}
SIMPLE(nvmlDeviceGetSupportedEventTypes, unsigned long long, nvmlEventTypeXidCriticalError)
nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout_ms) {
    ENTER(NULL);
    double end = now_s() + timeout_ms / 1e3;
    for (;;) {
        for (int i = 0; i < event_count; i++) {
            struct event *e = &events[i];
            if (e->serial <= event_serial || !(watched & 1U << e->gpu)) continue;
            event_serial = e->serial;
            *data = (nvmlEventData_t){(nvmlDevice_t)&handles[e->gpu][SLICES], nvmlEventTypeXidCriticalError, e->code, ~0U, ~0U};
            return NVML_SUCCESS;
        }
        if (now_s() >= end) return NVML_ERROR_TIMEOUT;
        pthread_mutex_unlock(&lock);
        pause_s(0.05);
        pthread_mutex_lock(&lock);
        read_config();
    }
}
nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set) { ENTER(NULL); watched = 0; return NVML_SUCCESS; }
