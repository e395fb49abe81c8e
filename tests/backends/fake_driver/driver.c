/* A driver without a card: machine code is loaded and looked at, kernels do nothing.

   Built as libcuda.so.1 by tests/backends/fake_driver/machine.py. Device memory is the process's
   own. A launch is refused as a card would refuse it, and written to the file that FAKE_CUDA_LOG
   names: kernel, grid, block, static and dynamic shared bytes, parameters, their bytes, registers.
   One kernel is run: `count_up`, by which the backend finds out whether a card works.

   FAKE_CUDA_DEVICES, FAKE_CUDA_CAPABILITY (90), FAKE_CUDA_FREE (bytes), FAKE_CUDA_LAUNCH (an error
   that every launch returns) and FAKE_CUDA_INERT (count_up is not run either) make other machines. */
#include <elf.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int Result;
enum { OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NO_DEVICE = 100, INVALID_IMAGE = 200,
       NOT_FOUND = 500, OUT_OF_RESOURCES = 701, NOT_SUPPORTED = 801 };
enum { NAME = 2048, MAX_PARAMS = 256, SHARED = 48 << 10, REGISTERS = 65536 };

typedef struct {
  char name[NAME];
  int n_params, sizes[MAX_PARAMS], offsets[MAX_PARAMS];
  int n_threads, registers;
  long shared;
} Kernel;
typedef struct { Kernel kernels[8]; int count; } Library;
typedef struct {
  unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared;
  void *stream, *attributes;
  unsigned n_attributes;
} Config;

static __thread void *context;
static long handles = 0x10000;

static long number(const char *name, long otherwise) {
  const char *text = getenv(name);
  return text && *text ? atol(text) : otherwise;
}
static void *handle(void) { return (void *)(handles += 16); }

/* Machine code: sections of a kernel by its name. */

static Kernel *kernel_of(Library *library, const char *name) {
  for (int i = 0; i < library->count; i++)
    if (!strcmp(library->kernels[i].name, name)) return &library->kernels[i];
  return NULL;
}

static void read_parameters(Kernel *kernel, const uint8_t *at, const uint8_t *end) {
  while (at + 4 <= end) {
    uint16_t size = (uint16_t)(at[2] | at[3] << 8);
    const uint8_t *value = at + 4;
    uint32_t words[3] = {0};
    if (at[0] == 4) memcpy(words, value, size < 12 ? size : 12);
    if (at[0] == 4 && at[1] == 0x17) { /* a parameter: index, ordinal and offset, flags */
      int which = (int)(words[1] & 0xFFFF);
      if (which < MAX_PARAMS) {
        kernel->offsets[which] = (int)(words[1] >> 16);
        kernel->sizes[which] = (int)(words[2] >> 18);
        if (which >= kernel->n_params) kernel->n_params = which + 1;
      }
    }
    if (at[0] == 4 && at[1] == 0x05) kernel->n_threads = (int)(words[0] * words[1] * words[2]);
    at += 4 + (at[0] == 4 ? size : 0);
  }
}

static void read_registers(Library *library, const uint8_t *image, const Elf64_Shdr *sections,
                           int n, const uint8_t *at, const uint8_t *end) {
  for (int s = 0; s < n; s++) {
    if (sections[s].sh_type != SHT_SYMTAB) continue;
    const Elf64_Sym *symbols = (const Elf64_Sym *)(image + sections[s].sh_offset);
    const char *names = (const char *)image + sections[sections[s].sh_link].sh_offset;
    for (; at + 4 <= end; at += 4 + (at[0] == 4 ? at[2] | at[3] << 8 : 0)) {
      uint32_t words[2];
      if (at[0] != 4 || at[1] != 0x2f) continue;
      memcpy(words, at + 4, sizeof words);
      Kernel *kernel = kernel_of(library, names + symbols[words[0]].st_name);
      if (kernel) kernel->registers = (int)words[1];
    }
  }
}

static Library *read_image(const uint8_t *image) {
  if (memcmp(image, ELFMAG, SELFMAG)) return NULL;
  const Elf64_Ehdr *head = (const Elf64_Ehdr *)image;
  const Elf64_Shdr *sections = (const Elf64_Shdr *)(image + head->e_shoff);
  const char *names = (const char *)image + sections[head->e_shstrndx].sh_offset;
  Library *library = calloc(1, sizeof *library);
  for (int s = 0; s < head->e_shnum; s++) { /* each kernel has one */
    const char *name = names + sections[s].sh_name;
    if (strncmp(name, ".nv.constant0.", 14) || library->count == 8) continue;
    snprintf(library->kernels[library->count++].name, NAME, "%s", name + 14);
  }
  for (int s = 0; s < head->e_shnum; s++) {
    const char *name = names + sections[s].sh_name;
    const uint8_t *at = image + sections[s].sh_offset, *end = at + sections[s].sh_size;
    Kernel *kernel;
    if (!strncmp(name, ".nv.info.", 9) && (kernel = kernel_of(library, name + 9)))
      read_parameters(kernel, at, end);
    if (!strncmp(name, ".nv.shared.", 11) && (kernel = kernel_of(library, name + 11)))
      kernel->shared = (long)sections[s].sh_size;
    if (!strcmp(name, ".nv.info"))
      read_registers(library, image, sections, head->e_shnum, at, end);
  }
  return library;
}

static Result library_load(void **library, const void *code) {
  *library = read_image(code);
  return *library ? OK : INVALID_IMAGE;
}
static Result library_kernel(void **kernel, void *library, const char *name) {
  *kernel = kernel_of(library, name);
  return *kernel ? OK : NOT_FOUND;
}
static Result kernel_param(void *kernel, size_t which, size_t *offset, size_t *size) {
  Kernel *k = kernel;
  if ((long)which >= k->n_params) return INVALID_VALUE;
  if (offset) *offset = (size_t)k->offsets[which];
  if (size) *size = (size_t)k->sizes[which];
  return OK;
}
static Result same_handle(void **out, void *in) { *out = in; return OK; }
static Result kernel_attribute(int *value, int which, Kernel *kernel) {
  switch (which) {
    case 0: *value = kernel->n_threads ? kernel->n_threads : 1024; break;
    case 1: *value = (int)kernel->shared; break;
    case 4: *value = kernel->registers; break;
    default: *value = 0;
  }
  return OK;
}
static Result kernel_get_attribute(int *value, int which, void *kernel, int device) {
  (void)device;
  return kernel_attribute(value, which, kernel);
}
static Result function_get_attribute(int *value, int which, void *kernel) {
  return kernel_attribute(value, which, kernel);
}

/* Launches. */

static Result start(Kernel *kernel, const Config *config, void **params) {
  long threads = (long)config->block_x * config->block_y * config->block_z;
  long most = kernel->n_threads ? kernel->n_threads : 1024;
  long refused = number("FAKE_CUDA_LAUNCH", 0);
  unsigned sum = 0;
  int bytes = 0;
  if (refused) return (Result)refused;
  if (threads < 1 || threads > most || !config->grid_x || !config->grid_y || !config->grid_z ||
      config->grid_x > 2147483647u || config->grid_y > 65535 || config->grid_z > 65535 ||
      config->block_z > 64)
    return INVALID_VALUE;
  if (kernel->shared + config->shared > SHARED) return INVALID_VALUE;
  if (threads * kernel->registers > REGISTERS) return OUT_OF_RESOURCES;
  for (int i = 0; i < kernel->n_params; i++) { /* a card copies them at once */
    const uint8_t *value = params[i];
    for (int b = 0; b < kernel->sizes[i]; b++) sum += value[b];
    bytes += kernel->sizes[i];
  }
  if (strstr(kernel->name, "count_up") && !number("FAKE_CUDA_INERT", 0))
    ++**(int32_t **)params[4]; /* an array: object, parent, elements, bytes of one, address */
  const char *log = getenv("FAKE_CUDA_LOG");
  if (log && *log) {
    FILE *file = fopen(log, "a");
    if (!file) return INVALID_VALUE;
    fprintf(file, "%s %u %u %u %u %u %u %ld %u %d %d %d %u\n", kernel->name, config->grid_x,
            config->grid_y, config->grid_z, config->block_x, config->block_y, config->block_z,
            kernel->shared, config->shared, kernel->n_params, bytes, kernel->registers, sum);
    fclose(file);
  }
  return OK;
}
static Result launch_ex(const Config *config, void *kernel, void **params, void **extra) {
  return extra ? NOT_SUPPORTED : start(kernel, config, params);
}
static Result launch(void *kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                     unsigned bz, unsigned shared, void *stream, void **params, void **extra) {
  Config config = {gx, gy, gz, bx, by, bz, shared, stream, NULL, 0};
  return launch_ex(&config, kernel, params, extra);
}

/* The machine. */

static Result init(unsigned flags) { (void)flags; return number("FAKE_CUDA_DEVICES", 1) ? OK : NO_DEVICE; }
static Result version(int *value) { *value = 13000; return OK; }
static Result device_count(int *count) { *count = (int)number("FAKE_CUDA_DEVICES", 1); return OK; }
static Result device_get(int *device, int ordinal) { *device = ordinal; return OK; }
static Result device_name(char *name, int room, int device) {
  (void)device;
  snprintf(name, (size_t)room, "Card of the tests");
  return OK;
}
static Result device_uuid(char *uuid, int device) { memset(uuid, 7 + device, 16); return OK; }
static Result device_attribute(int *value, int which, int device) {
  long capability = number("FAKE_CUDA_CAPABILITY", 90);
  (void)device;
  switch (which) {
    case 1: case 2: case 3: *value = 1024; break; /* threads of a block, in x, in y */
    case 4: *value = 64; break;
    case 5: *value = 2147483647; break;
    case 6: case 7: *value = 65535; break;
    case 8: *value = SHARED; break;
    case 10: *value = 32; break;
    case 12: *value = REGISTERS; break;
    case 16: *value = 132; break; /* multiprocessors */
    case 75: *value = (int)(capability / 10); break;
    case 76: *value = (int)(capability % 10); break;
    default: *value = 1;
  }
  return OK;
}
static Result memory_info(size_t *free_bytes, size_t *total) {
  *free_bytes = (size_t)number("FAKE_CUDA_FREE", 70L << 30);
  *total = (size_t)80 << 30;
  return OK;
}
static Result context_retain(void **out, int device) { (void)device; *out = (void *)0x1000; return OK; }
static Result context_state(int device, unsigned *flags, int *active) {
  (void)device;
  *flags = 0;
  *active = context != NULL;
  return OK;
}
static Result context_get(void **out) { *out = context; return OK; }
static Result context_set(void *in) { context = in; return OK; }
static Result context_pop(void **out) { if (out) *out = context; context = NULL; return OK; }
static Result context_device(int *device) { *device = 0; return OK; }
static Result stream_context(void *stream, void **out) { (void)stream; *out = (void *)0x1000; return OK; }
static Result stream_context_2(void *stream, void **out, void **green) {
  if (green) *green = NULL;
  return stream_context(stream, out);
}
static Result stream_create(void **stream, unsigned flags) { (void)flags; *stream = handle(); return OK; }
static Result error_name(int error, const char **text) {
  *text = error == OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY"
          : error == 700         ? "CUDA_ERROR_ILLEGAL_ADDRESS"
          : error == 719         ? "CUDA_ERROR_LAUNCH_FAILED"
                                 : "CUDA_ERROR_OF_THE_TESTS";
  return OK;
}
static Result error_text(int error, const char **text) { (void)error; *text = "as the tests ask"; return OK; }
static Result nothing(void) { return OK; }
static Result refuse(void) { return NOT_SUPPORTED; }

static Result address_2(const char *name, void **found, int v, uint64_t flags, int *status);
static Result address(const char *name, void **found, int v, uint64_t flags);

static const struct { const char *name; void *function; } TABLE[] = {
    {"cuInit", init}, {"cuDriverGetVersion", version}, {"cuGetErrorName", error_name},
    {"cuGetErrorString", error_text}, {"cuGetProcAddress", address_2},
    {"cuGetProcAddress_v2", address_2}, {"cuDeviceGetCount", device_count},
    {"cuDeviceGet", device_get}, {"cuDeviceGetName", device_name},
    {"cuDeviceGetUuid", device_uuid}, {"cuDeviceGetAttribute", device_attribute},
    {"cuMemGetInfo", memory_info}, {"cuDevicePrimaryCtxRetain", context_retain},
    {"cuDevicePrimaryCtxRelease", nothing}, {"cuDevicePrimaryCtxGetState", context_state},
    {"cuCtxGetCurrent", context_get}, {"cuCtxSetCurrent", context_set},
    {"cuCtxPushCurrent", context_set}, {"cuCtxPopCurrent", context_pop},
    {"cuCtxGetDevice", context_device}, {"cuCtxSynchronize", nothing},
    {"cuStreamGetCtx", stream_context}, {"cuStreamGetCtx_v2", stream_context_2},
    {"cuStreamCreate", stream_create}, {"cuStreamDestroy", nothing},
    {"cuStreamSynchronize", nothing}, {"cuLibraryLoadData", library_load},
    {"cuLibraryUnload", nothing}, {"cuLibraryGetKernel", library_kernel},
    {"cuLibraryGetModule", same_handle}, {"cuKernelGetFunction", same_handle},
    {"cuModuleLoadDataEx", library_load}, {"cuModuleUnload", nothing},
    {"cuModuleGetFunction", library_kernel}, {"cuKernelGetAttribute", kernel_get_attribute},
    {"cuFuncGetAttribute", function_get_attribute}, {"cuFuncSetCacheConfig", nothing},
    {"cuKernelGetParamInfo", kernel_param}, {"cuFuncGetParamInfo", kernel_param},
    {"cuLaunchKernel", launch}, {"cuLaunchKernelEx", launch_ex},
};

static void *find(const char *name) {
  for (size_t i = 0; i < sizeof TABLE / sizeof *TABLE; i++)
    if (!strcmp(name, TABLE[i].name)) return TABLE[i].function;
  if (getenv("FAKE_CUDA_TRACE")) fprintf(stderr, "libcuda of the tests lacks %s\n", name);
  return refuse;
}
static Result address_2(const char *name, void **found, int v, uint64_t flags, int *status) {
  (void)v, (void)flags;
  *found = find(name);
  if (status) *status = 0;
  return OK;
}
static Result address(const char *name, void **found, int v, uint64_t flags) {
  return address_2(name, found, v, flags, NULL);
}

/* What is looked up by the linker and not by cuGetProcAddress. */
Result cuGetProcAddress_v2(const char *name, void **found, int v, uint64_t flags, int *status) {
  return address_2(name, found, v, flags, status);
}
Result cuGetProcAddress(const char *name, void **found, int v, uint64_t flags) {
  return address(name, found, v, flags);
}
Result cuInit(unsigned flags) { return init(flags); }
Result cuDriverGetVersion(int *value) { return version(value); }
Result cuDeviceGetCount(int *count) { return device_count(count); }
Result cuDeviceGetAttribute(int *value, int which, int device) {
  return device_attribute(value, which, device);
}
Result cuMemGetInfo_v2(size_t *free_bytes, size_t *total) { return memory_info(free_bytes, total); }
