// Reads Parquet files and Arrow files and streams with Apache Arrow's C++ library, without threads
// and with bounded memory: rows of a Parquet file are read in pieces, record batches one at a time.
#include "arrow_shim.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include <arrow/buffer.h>
#include <arrow/c/bridge.h>
#include <arrow/io/interfaces.h>
#include <arrow/ipc/reader.h>
#include <arrow/memory_pool.h>
#include <arrow/record_batch.h>
#include <arrow/result.h>
#include <arrow/type.h>
#include <arrow/util/byte_size.h>
#include <arrow/util/config.h>
#include <arrow/util/future.h>
#include <parquet/arrow/reader.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>
#include <parquet/schema.h>
#include <unistd.h>

namespace
{

constexpr int64_t mib = int64_t(1) << 20;
constexpr int64_t batch_bytes = 4 * mib; // decoded bytes of a batch of a Parquet file, about
constexpr int64_t most_rows = 4096;
constexpr int64_t read_bytes = 16 * mib; // of all columns together, read at a time

// A dictionary or runs of equal values let a small file stand for any number of bytes.
int64_t most_bytes(int64_t file_bytes)
{
    return std::min(64 * mib + 128 * std::min(file_bytes, 512 * mib), 512 * mib);
}

// The memory of all arrays of a file, which has a limit.
class bounded_pool final : public arrow::MemoryPool
{
  public:
    using MemoryPool::Allocate;
    using MemoryPool::Free;
    using MemoryPool::Reallocate;

    explicit bounded_pool(int64_t limit) : limit_(limit)
    {
    }
    arrow::Status Allocate(int64_t size, int64_t alignment, uint8_t **out) override
    {
        ARROW_RETURN_NOT_OK(check(size));
        ARROW_RETURN_NOT_OK(pool_->Allocate(size, alignment, out));
        used_ += size;
        total_ += size;
        n_++;
        return arrow::Status::OK();
    }
    arrow::Status Reallocate(int64_t old_size, int64_t size, int64_t alignment,
                             uint8_t **data) override
    {
        if (size > old_size)
            ARROW_RETURN_NOT_OK(check(size - old_size));
        ARROW_RETURN_NOT_OK(pool_->Reallocate(old_size, size, alignment, data));
        used_ += size - old_size;
        total_ += std::max<int64_t>(size - old_size, 0);
        n_++;
        return arrow::Status::OK();
    }
    void Free(uint8_t *data, int64_t size, int64_t alignment) override
    {
        pool_->Free(data, size, alignment);
        used_ -= size;
    }
    int64_t bytes_allocated() const override
    {
        return used_;
    }
    int64_t total_bytes_allocated() const override
    {
        return total_;
    }
    int64_t num_allocations() const override
    {
        return n_;
    }
    std::string backend_name() const override
    {
        return "bounded";
    }

  private:
    arrow::Status check(int64_t more) const
    {
        return more > limit_ - used_
                   ? arrow::Status::OutOfMemory(more, " bytes beside ", used_, " of ", limit_)
                   : arrow::Status::OK();
    }

    arrow::MemoryPool *const pool_ = arrow::default_memory_pool();
    const int64_t limit_;
    int64_t used_ = 0, total_ = 0, n_ = 0;
};

// An open file that is read with pread(), so that its offset does not move and nothing is mapped: a
// file that shrinks gives an error instead of a signal.
class input final : public arrow::io::RandomAccessFile
{
  public:
    input(int fd, int64_t bytes) : fd_(fd), bytes_(bytes)
    {
    }

    arrow::Status Close() override
    {
        closed_ = true;
        return arrow::Status::OK();
    }
    bool closed() const override
    {
        return closed_;
    }
    arrow::Result<int64_t> Tell() const override
    {
        return at_;
    }
    arrow::Status Seek(int64_t at) override
    {
        at_ = at;
        return arrow::Status::OK();
    }
    arrow::Result<int64_t> GetSize() override
    {
        return bytes_;
    }

    arrow::Result<int64_t> ReadAt(int64_t at, int64_t n, void *out) override
    {
        int64_t got = 0;
        if (at < 0 || n < 0)
            return arrow::Status::Invalid("a read of ", n, " bytes at byte ", at);
        while (got < n) {
            const ssize_t k =
                pread(fd_, static_cast<char *>(out) + got, static_cast<size_t>(n - got), at + got);
            if (k < 0 && errno == EINTR)
                continue;
            if (k < 0)
                return arrow::Status::IOError("cannot read it: ", std::strerror(errno));
            if (k == 0)
                break;
            got += k;
        }
        return got;
    }
    arrow::Result<std::shared_ptr<arrow::Buffer>> ReadAt(int64_t at, int64_t n) override
    {
        if (at < 0 || n < 0)
            return arrow::Status::Invalid("a read of ", n, " bytes at byte ", at);
        // A damaged file may name any length; it has no more bytes than this.
        n = std::max<int64_t>(0, std::min(n, bytes_ - at));
        ARROW_ASSIGN_OR_RAISE(auto buffer, arrow::AllocateResizableBuffer(n));
        ARROW_ASSIGN_OR_RAISE(const int64_t got, ReadAt(at, n, buffer->mutable_data()));
        ARROW_RETURN_NOT_OK(buffer->Resize(got));
        return std::shared_ptr<arrow::Buffer>(std::move(buffer));
    }
    // Arrow's own versions read on a thread of a pool that they start.
    using buffer_future = arrow::Future<std::shared_ptr<arrow::Buffer>>;
    buffer_future ReadAsync(const arrow::io::IOContext &, int64_t at, int64_t n) override
    {
        return buffer_future::MakeFinished(ReadAt(at, n));
    }
    // Arrow 26 and later call this one. is_short_allowed 0: fewer bytes are an error.
    virtual buffer_future ReadAsync(const arrow::io::IOContext &, int64_t at, int64_t n,
                                    bool is_short_allowed)
    {
        auto got = ReadAt(at, n);
        if (got.ok() && !is_short_allowed && (*got)->size() < n)
            return buffer_future::MakeFinished(arrow::Status::IOError("it ends at byte ", bytes_));
        return buffer_future::MakeFinished(std::move(got));
    }
    arrow::Result<int64_t> Read(int64_t n, void *out) override
    {
        ARROW_ASSIGN_OR_RAISE(const int64_t got, ReadAt(at_, n, out));
        at_ += got;
        return got;
    }
    arrow::Result<std::shared_ptr<arrow::Buffer>> Read(int64_t n) override
    {
        ARROW_ASSIGN_OR_RAISE(auto buffer, ReadAt(at_, n));
        at_ += buffer->size();
        return buffer;
    }

  private:
    int fd_;
    int64_t bytes_, at_ = 0;
    bool closed_ = false;
};

using batch_ptr = std::shared_ptr<arrow::RecordBatch>;

// A file of any format. Rows are in groups.
class table
{
  public:
    explicit table(int64_t file_bytes) : bytes(file_bytes), pool(most_bytes(file_bytes))
    {
    }
    virtual ~table() = default;
    virtual arrow::Status open(std::shared_ptr<input> file) = 0;
    virtual std::shared_ptr<arrow::Schema> schema() const = 0;
    virtual arrow::Status begin(const std::vector<int> &columns, int64_t group) = 0;
    // The next rows, which begin at row *first of *group; null at the end.
    virtual arrow::Result<batch_ptr> next(int64_t *group, int64_t *first) = 0;

    const int64_t bytes;               // length of the file
    int64_t first_group = 0, skip = 0; // rows of the first group that are not wanted
    bounded_pool pool;                 // outlives the arrays that the classes below keep
};

class parquet_table final : public table
{
  public:
    using table::table;

    arrow::Status open(std::shared_ptr<input> file) override
    {
        source_ = std::move(file);
        return make_reader(nullptr, 1).Value(&file_);
    }
    std::shared_ptr<arrow::Schema> schema() const override
    {
        return schema_;
    }

    arrow::Status begin(const std::vector<int> &columns, int64_t group) override
    {
        const auto metadata = file_->parquet_reader()->metadata();
        const auto *names = metadata->schema();
        const auto *root = names->group_node();
        std::vector<const parquet::schema::Node *> chosen;
        for (const int column : columns)
            chosen.push_back(root->field(column).get());
        std::sort(chosen.begin(), chosen.end());
        for (int leaf = 0; leaf < names->num_columns(); leaf++)
            if (std::binary_search(chosen.begin(), chosen.end(), names->GetColumnRoot(leaf)))
                leaves_.push_back(leaf);
        group_ = group - 1;
        ARROW_ASSIGN_OR_RAISE(file_, make_reader(metadata, leaves_.size()));
        return arrow::Status::OK();
    }

    arrow::Result<batch_ptr> next(int64_t *group, int64_t *first) override
    {
        for (;;) {
            if (!batches_) {
                if (++group_ >= file_->num_row_groups())
                    return batch_ptr();
                row_ = 0;
                most_ = most_rows;
                ARROW_RETURN_NOT_OK(open_group());
            }
            batch_ptr batch;
            const arrow::Status read = read_rows(rows_, &batch);
            if (read.IsOutOfMemory() && rows_ > 1) { // again from row_ on, and fewer rows at a time
                rows_ = most_ = std::max<int64_t>(rows_ / 16, 1);
                ARROW_RETURN_NOT_OK(open_group());
                ARROW_RETURN_NOT_OK(pass_rows());
                continue;
            }
            ARROW_RETURN_NOT_OK(read);
            if (batch) {
                *group = group_;
                *first = row_;
                row_ += batch->num_rows();
                choose_rows(*batch);
                return batch;
            }
            batches_.reset();
        }
    }

  private:
    arrow::Result<std::unique_ptr<parquet::arrow::FileReader>>
    make_reader(const std::shared_ptr<parquet::FileMetaData> &metadata, size_t n_leaves)
    {
        parquet::ReaderProperties properties(&pool);
        properties.enable_buffered_stream(); // columns are read in pieces
        properties.set_buffer_size(std::clamp<int64_t>(
            read_bytes / std::max<int64_t>(static_cast<int64_t>(n_leaves), 1), 4096, mib));
        // Memory for all elements of a list of the footer is taken before they are read; an element
        // of a list that can be long has more than four bytes there.
        properties.set_thrift_container_size_limit(
            static_cast<int32_t>(std::clamp<int64_t>(bytes / 4, 64, 1000000)));
        parquet::ArrowReaderProperties arrow_properties(false);
        arrow_properties.set_pre_buffer(false); // it would read whole groups, on threads
        std::unique_ptr<parquet::arrow::FileReader> reader;
        ARROW_ASSIGN_OR_RAISE(
            reader, parquet::arrow::FileReader::Make(
                        &pool, parquet::ParquetFileReader::Open(source_, properties, metadata),
                        arrow_properties));
        if (!schema_)
            ARROW_RETURN_NOT_OK(reader->GetSchema(&schema_));
        return reader;
    }

    arrow::Status read_rows(int64_t rows, batch_ptr *out)
    {
        file_->set_batch_size(rows);
        return batches_->ReadNext(out);
    }

    // The metadata do not tell how much memory a row takes: a value of a dictionary counts once
    // there, however many rows have it. So the first batches are small, and each tells how many
    // rows the next may have.
    void choose_rows(const arrow::RecordBatch &batch)
    {
        const int64_t took = std::max<int64_t>(arrow::util::TotalBufferSize(batch), 1);
        const double fit = static_cast<double>(batch.num_rows()) *
                           static_cast<double>(batch_bytes) / static_cast<double>(took);
        rows_ = std::clamp(static_cast<int64_t>(std::min(fit, 1e6)), int64_t(1),
                           std::min(4 * rows_, most_));
    }

    arrow::Status open_group()
    {
        batches_.reset();
        return file_->GetRecordBatchReader({static_cast<int>(group_)}, leaves_).Value(&batches_);
    }

    // Reads the rows before row_ once more and drops them.
    arrow::Status pass_rows()
    {
        for (int64_t passed = 0; passed < row_;) {
            batch_ptr batch;
            ARROW_RETURN_NOT_OK(read_rows(std::min(rows_, row_ - passed), &batch));
            if (!batch)
                return arrow::Status::Invalid("fewer rows than before");
            passed += batch->num_rows();
        }
        return arrow::Status::OK();
    }

    std::shared_ptr<input> source_;
    std::unique_ptr<parquet::arrow::FileReader> file_;
    std::shared_ptr<arrow::Schema> schema_;
    std::vector<int> leaves_;
    std::unique_ptr<arrow::RecordBatchReader> batches_; // of the group; null: it has ended
    int64_t group_ = -1, row_ = 0;                      // the next row
    int64_t rows_ = 1, most_ = most_rows; // of the next batch; of any batch of the group
};

arrow::ipc::IpcReadOptions ipc_options(arrow::MemoryPool *pool, const std::vector<int> *columns)
{
    auto options = arrow::ipc::IpcReadOptions::Defaults();
    options.use_threads = false;
    options.memory_pool = pool;
    options.max_recursion_depth = 64;
    if (columns)
        options.included_fields = *columns;
    return options;
}

class file_table final : public table
{
  public:
    using table::table;

    arrow::Status open(std::shared_ptr<input> file) override
    {
        source_ = std::move(file);
        return arrow::ipc::RecordBatchFileReader::Open(source_, ipc_options(&pool, nullptr))
            .Value(&file_);
    }
    std::shared_ptr<arrow::Schema> schema() const override
    {
        return file_->schema();
    }

    arrow::Status begin(const std::vector<int> &columns, int64_t group) override
    {
        at_ = group;
        return arrow::ipc::RecordBatchFileReader::Open(source_, ipc_options(&pool, &columns))
            .Value(&file_);
    }
    arrow::Result<batch_ptr> next(int64_t *group, int64_t *first) override
    {
        if (at_ >= file_->num_record_batches())
            return batch_ptr();
        *group = at_;
        *first = 0;
        return file_->ReadRecordBatch(static_cast<int>(at_++));
    }

  private:
    std::shared_ptr<input> source_;
    std::shared_ptr<arrow::ipc::RecordBatchFileReader> file_;
    int64_t at_ = 0;
};

// A stream has no list of its batches, so those before the first wanted one are read and dropped.
class stream_table final : public table
{
  public:
    using table::table;

    arrow::Status open(std::shared_ptr<input> file) override
    {
        source_ = std::move(file);
        return arrow::ipc::RecordBatchStreamReader::Open(source_, ipc_options(&pool, nullptr))
            .Value(&stream_);
    }
    std::shared_ptr<arrow::Schema> schema() const override
    {
        return stream_->schema();
    }

    arrow::Status begin(const std::vector<int> &columns, int64_t group) override
    {
        batch_ptr passed;
        ARROW_RETURN_NOT_OK(source_->Seek(0));
        ARROW_RETURN_NOT_OK(
            arrow::ipc::RecordBatchStreamReader::Open(source_, ipc_options(&pool, &columns))
                .Value(&stream_));
        for (at_ = 0; at_ < group; at_++)
            ARROW_RETURN_NOT_OK(stream_->ReadNext(&passed));
        return arrow::Status::OK();
    }
    arrow::Result<batch_ptr> next(int64_t *group, int64_t *first) override
    {
        batch_ptr batch;
        ARROW_RETURN_NOT_OK(stream_->ReadNext(&batch));
        *group = at_++;
        *first = 0;
        return batch;
    }

  private:
    std::shared_ptr<input> source_;
    std::shared_ptr<arrow::ipc::RecordBatchStreamReader> stream_;
    int64_t at_ = 0;
};

// The message of a library, as one line.
int failed(const std::string &text, char *why, size_t why_bytes)
{
    std::snprintf(why, why_bytes, "%s", text.c_str());
    for (char *c = why; *c; c++)
        if (*c == '\n' || *c == '\r')
            *c = ' ';
    return SHIM_DAMAGED;
}

// Calls body() and turns statuses and exceptions into codes of the boundary.
template <typename function> int guarded(int64_t bytes, char *why, size_t why_bytes, function body)
{
    arrow::Status status;
    try {
        const arrow::Result<int> result = body();
        if (result.ok())
            return *result;
        status = result.status();
    } catch (const parquet::ParquetStatusException &e) {
        status = e.status();
    } catch (const std::bad_alloc &) {
        status = arrow::Status::OutOfMemory("");
    } catch (const std::exception &e) {
        status = arrow::Status::Invalid(e.what());
    } catch (...) {
        status = arrow::Status::Invalid("Apache Arrow failed and does not say why");
    }
    if (!status.IsOutOfMemory())
        return failed(status.message(), why, why_bytes);
    std::snprintf(why, why_bytes,
                  "it needs more than %lld MiB of memory, which is the most that is read of a file "
                  "of %lld bytes (64 MiB, and 128 bytes for each byte of the file, at most 512 "
                  "MiB); write it with shorter values, or in smaller batches",
                  static_cast<long long>(most_bytes(bytes) / mib), static_cast<long long>(bytes));
    return SHIM_TOO_LARGE;
}

std::unique_ptr<table> make_table(int32_t format, int64_t bytes)
{
    if (format == SHIM_PARQUET)
        return std::make_unique<parquet_table>(bytes);
    if (format == SHIM_FILE)
        return std::make_unique<file_table>(bytes);
    return std::make_unique<stream_table>(bytes);
}

int open_file(int fd, int64_t bytes, int32_t format, void **out, ArrowSchema *out_schema, char *why,
              size_t why_bytes)
{
    return guarded(bytes, why, why_bytes, [&]() -> arrow::Result<int> {
        std::unique_ptr<table> made = make_table(format, bytes);
        ARROW_RETURN_NOT_OK(made->open(std::make_shared<input>(fd, bytes)));
        ARROW_RETURN_NOT_OK(arrow::ExportSchema(*made->schema(), out_schema));
        *out = made.release();
        return 0;
    });
}

int begin(void *file, const int32_t *columns, int32_t n, int64_t group, int64_t first, char *why,
          size_t why_bytes)
{
    table *const t = static_cast<table *>(file);
    return guarded(t->bytes, why, why_bytes, [&]() -> arrow::Result<int> {
        t->first_group = group;
        t->skip = first;
        ARROW_RETURN_NOT_OK(t->begin(std::vector<int>(columns, columns + n), group));
        return 0;
    });
}

int next(void *file, arrow_rows *out, char *why, size_t why_bytes)
{
    table *const t = static_cast<table *>(file);
    return guarded(t->bytes, why, why_bytes, [&]() -> arrow::Result<int> {
        for (;;) {
            ARROW_ASSIGN_OR_RAISE(batch_ptr batch, t->next(&out->group, &out->first));
            if (!batch)
                return 0;
            const int64_t skip = out->group == t->first_group ? t->skip - out->first : 0;
            const int64_t drop = std::clamp<int64_t>(skip, 0, batch->num_rows());
            if (drop == batch->num_rows())
                continue;
            out->first += drop;
            batch = batch->Slice(drop);
            ARROW_RETURN_NOT_OK(batch->ValidateFull()); // offsets and UTF-8 of damaged files
            ARROW_RETURN_NOT_OK(arrow::ExportRecordBatch(*batch, &out->batch));
            return 1;
        }
    });
}

void close_file(void *file)
{
    delete static_cast<table *>(file);
}

} // namespace

extern "C" const arrow_shim lathe_arrow_shim = {
    SHIM_VERSION, 0, ARROW_VERSION_STRING, open_file, begin, next, close_file,
};
