// Reads Parquet files and Arrow files and streams with Apache Arrow's C++ library, without threads
// and with bounded memory: columns of a Parquet file are read in pieces, record batches one at a
// time.
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
#include <arrow/record_batch.h>
#include <arrow/result.h>
#include <arrow/type.h>
#include <arrow/util/config.h>
#include <arrow/util/future.h>
#include <parquet/arrow/reader.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>
#include <parquet/schema.h>
#include <unistd.h>

namespace
{

constexpr int64_t batch_bytes = 4 << 20; // decoded bytes of a batch of a Parquet file, about
constexpr int64_t most_rows = 4096;

// The memory of all arrays of a file. A dictionary or runs of equal values let a small file stand
// for any number of bytes, so a batch of rows that needs more is read again in fewer rows.
constexpr int64_t most_bytes = int64_t(1) << 29;

arrow::MemoryPool *pool()
{
    static arrow::CappedMemoryPool capped(arrow::default_memory_pool(), most_bytes);
    return &capped;
}

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
    virtual ~table() = default;
    virtual std::shared_ptr<arrow::Schema> schema() const = 0;
    virtual arrow::Status begin(const std::vector<int> &columns, int64_t group) = 0;
    // The next rows, which begin at row *first of *group; null at the end.
    virtual arrow::Result<batch_ptr> next(int64_t *group, int64_t *first) = 0;

    int64_t first_group = 0, skip = 0; // rows of the first group that are not wanted
};

class parquet_table final : public table
{
  public:
    arrow::Status open(std::shared_ptr<input> file)
    {
        parquet::ReaderProperties properties(pool());
        properties.enable_buffered_stream(); // columns are read in pieces
        properties.set_buffer_size(1 << 20);
        auto reader = parquet::ParquetFileReader::Open(std::move(file), properties);
        parquet::ArrowReaderProperties arrow_properties(false);
        arrow_properties.set_pre_buffer(false); // it would read whole groups, on threads
        ARROW_ASSIGN_OR_RAISE(
            file_, parquet::arrow::FileReader::Make(pool(), std::move(reader), arrow_properties));
        return file_->GetSchema(&schema_);
    }
    std::shared_ptr<arrow::Schema> schema() const override
    {
        return schema_;
    }

    arrow::Status begin(const std::vector<int> &columns, int64_t group) override
    {
        const auto *names = file_->parquet_reader()->metadata()->schema();
        const auto *root = names->group_node();
        for (int leaf = 0; leaf < names->num_columns(); leaf++)
            for (const int column : columns)
                if (names->GetColumnRoot(leaf) == root->field(column).get())
                    leaves_.push_back(leaf);
        group_ = group - 1;
        return arrow::Status::OK();
    }

    arrow::Result<batch_ptr> next(int64_t *group, int64_t *first) override
    {
        for (;;) {
            if (!batches_) {
                if (++group_ >= file_->num_row_groups())
                    return batch_ptr();
                row_ = 0;
                rows_ = rows_of_batch();
                ARROW_RETURN_NOT_OK(open_group());
            }
            batch_ptr batch;
            const arrow::Status read = batches_->ReadNext(&batch);
            if (read.IsOutOfMemory() && rows_ > 1) { // again from row_ on, in smaller batches
                rows_ = std::max<int64_t>(rows_ / 16, 1);
                ARROW_RETURN_NOT_OK(open_group());
                ARROW_RETURN_NOT_OK(pass_rows());
                continue;
            }
            if (read.IsOutOfMemory())
                return arrow::Status::Invalid("row ", row_ + 1, " of its group ", group_ + 1,
                                              " needs more than ", most_bytes >> 20,
                                              " MiB, which is the most that is read");
            ARROW_RETURN_NOT_OK(read);
            if (batch) {
                *group = group_;
                *first = row_;
                row_ += batch->num_rows();
                return batch;
            }
            batches_.reset();
        }
    }

  private:
    int64_t rows_of_batch() const
    {
        const auto meta = file_->parquet_reader()->metadata()->RowGroup(static_cast<int>(group_));
        int64_t bytes = 0;
        for (const int leaf : leaves_)
            bytes += meta->ColumnChunk(leaf)->total_uncompressed_size();
        const int64_t each = bytes / std::max<int64_t>(meta->num_rows(), 1);
        const int64_t rows =
            std::clamp<int64_t>(batch_bytes / std::max<int64_t>(each, 1), 1, most_rows);
        int64_t power = 1; // smaller batches then divide larger ones
        while (2 * power <= rows)
            power *= 2;
        return power;
    }

    arrow::Status open_group()
    {
        batches_.reset();
        file_->set_batch_size(rows_);
        return file_->GetRecordBatchReader({static_cast<int>(group_)}, leaves_).Value(&batches_);
    }

    // Reads the rows before row_ once more and drops them.
    arrow::Status pass_rows()
    {
        for (int64_t passed = 0; passed < row_;) {
            batch_ptr batch;
            file_->set_batch_size(rows_);
            ARROW_RETURN_NOT_OK(batches_->ReadNext(&batch));
            if (!batch)
                return arrow::Status::Invalid("fewer rows than before");
            passed += batch->num_rows();
        }
        return arrow::Status::OK();
    }

    std::unique_ptr<parquet::arrow::FileReader> file_;
    std::shared_ptr<arrow::Schema> schema_;
    std::vector<int> leaves_;
    std::unique_ptr<arrow::RecordBatchReader> batches_; // of the group; null: it has ended
    int64_t group_ = -1, row_ = 0, rows_ = 0;
};

arrow::ipc::IpcReadOptions ipc_options(const std::vector<int> *columns)
{
    auto options = arrow::ipc::IpcReadOptions::Defaults();
    options.use_threads = false;
    options.memory_pool = pool();
    options.max_recursion_depth = 64;
    if (columns)
        options.included_fields = *columns;
    return options;
}

class file_table final : public table
{
  public:
    arrow::Status open(std::shared_ptr<input> file)
    {
        source_ = std::move(file);
        return arrow::ipc::RecordBatchFileReader::Open(source_, ipc_options(nullptr)).Value(&file_);
    }
    std::shared_ptr<arrow::Schema> schema() const override
    {
        return file_->schema();
    }

    arrow::Status begin(const std::vector<int> &columns, int64_t group) override
    {
        at_ = group;
        return arrow::ipc::RecordBatchFileReader::Open(source_, ipc_options(&columns))
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
    arrow::Status open(std::shared_ptr<input> file)
    {
        source_ = std::move(file);
        return arrow::ipc::RecordBatchStreamReader::Open(source_, ipc_options(nullptr))
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
            arrow::ipc::RecordBatchStreamReader::Open(source_, ipc_options(&columns))
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
    return -1;
}

// Calls body() and turns statuses and exceptions into -1.
template <typename function> int guarded(char *why, size_t why_bytes, function body)
{
    try {
        const arrow::Result<int> result = body();
        return result.ok() ? *result : failed(result.status().message(), why, why_bytes);
    } catch (const std::bad_alloc &) {
        return failed("no memory", why, why_bytes);
    } catch (const std::exception &e) {
        return failed(e.what(), why, why_bytes);
    } catch (...) {
        return failed("Apache Arrow failed and does not say why", why, why_bytes);
    }
}

int open_file(int fd, int64_t bytes, int32_t format, void **out, ArrowSchema *out_schema, char *why,
              size_t why_bytes)
{
    return guarded(why, why_bytes, [&]() -> arrow::Result<int> {
        const auto file = std::make_shared<input>(fd, bytes);
        std::unique_ptr<table> made;
        if (format == SHIM_PARQUET) {
            auto parquet = std::make_unique<parquet_table>();
            ARROW_RETURN_NOT_OK(parquet->open(file));
            made = std::move(parquet);
        } else if (format == SHIM_FILE) {
            auto ipc = std::make_unique<file_table>();
            ARROW_RETURN_NOT_OK(ipc->open(file));
            made = std::move(ipc);
        } else {
            auto stream = std::make_unique<stream_table>();
            ARROW_RETURN_NOT_OK(stream->open(file));
            made = std::move(stream);
        }
        ARROW_RETURN_NOT_OK(arrow::ExportSchema(*made->schema(), out_schema));
        *out = made.release();
        return 0;
    });
}

int begin(void *file, const int32_t *columns, int32_t n, int64_t group, int64_t first, char *why,
          size_t why_bytes)
{
    table *const t = static_cast<table *>(file);
    return guarded(why, why_bytes, [&]() -> arrow::Result<int> {
        t->first_group = group;
        t->skip = first;
        ARROW_RETURN_NOT_OK(t->begin(std::vector<int>(columns, columns + n), group));
        return 0;
    });
}

int next(void *file, arrow_rows *out, char *why, size_t why_bytes)
{
    table *const t = static_cast<table *>(file);
    return guarded(why, why_bytes, [&]() -> arrow::Result<int> {
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
