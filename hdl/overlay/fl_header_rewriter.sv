// SPDX-License-Identifier: Apache-2.0 OR MIT
// Header rewriter: the bytes of the window that written fields replace, with the checksums that cover them.
//
//   words, written ─► fields ─► headers ─► checksums ─► places in the window ─► bytes
//
// Equivalent to `wire::rewrite`. Words 1 to 3 of an address are not written in IPv4 packets.
//
// Latency: 14 cycles.
// Throughput: one packet a cycle.
// Handshake: none; data moves every cycle.
module fl_header_rewriter
  import fl_parse_pkg::*;
  import fl_config_pkg::*;
#(
    parameter int unsigned WindowBytes = 128,
    parameter int unsigned Words = 32,
    parameter int unsigned SidebandBits = 1
) (
    input  logic                     clk_i,
    input  config_t                  config_i,
    input  logic [Words-1:0][31:0]   words_i,
    input  logic [Words-1:0]         written_i,
    // Validity bits, headers and places from the parser.
    input  logic [31:0]              valid_i,
    input  headers_t                 headers_i,
    input  places_t                  places_i,
    input  logic                     bank_i,
    input  logic [SidebandBits-1:0]  sideband_i,
    // The first byte in the lowest bits.
    output logic [8*WindowBytes-1:0] data_o,
    output logic [WindowBytes-1:0]   mask_o,
    output logic [SidebandBits-1:0]  sideband_o
);

  localparam int unsigned EthernetBytes = 14;
  localparam int unsigned Latency = 14;
  localparam int unsigned WindowWords = (WindowBytes - EthernetBytes + 2) / 4;
  // Cycles before the parts of the block.
  localparam int unsigned BeforeHeaders = 2;
  localparam int unsigned BeforeChecksums = 4;
  localparam int unsigned BeforeInsert = 10;
  localparam int unsigned BeforePlaces = 11;

  typedef struct packed {
    logic [31:0]             valid;
    places_t                 places;
    logic                    bank;
    logic [SidebandBits-1:0] sideband;
  } beside_t;

  // By cycle.
  beside_t  beside[Latency+1];
  headers_t old[BeforeChecksums+1];
  headers_t changed[BeforeInsert-BeforeChecksums+1];
  bytes_t   touched[BeforeInsert-BeforeChecksums+1];

  assign beside[0] = '{valid: valid_i, places: places_i, bank: bank_i, sideband: sideband_i};
  assign old[0] = headers_i;

  for (genvar i = 1; i <= Latency; i++) begin : gen_beside
    beside_t beside_q;
    always_ff @(posedge clk_i) beside_q <= beside[i-1];
    assign beside[i] = beside_q;
  end
  for (genvar i = 1; i <= BeforeChecksums; i++) begin : gen_old
    headers_t old_q;
    always_ff @(posedge clk_i) old_q <= old[i-1];
    assign old[i] = old_q;
  end
  for (genvar i = 1; i <= BeforeInsert - BeforeChecksums; i++) begin : gen_changed
    headers_t changed_q;
    bytes_t   touched_q;
    always_ff @(posedge clk_i) begin
      changed_q <= changed[i-1];
      touched_q <= touched[i-1];
    end
    assign changed[i] = changed_q;
    assign touched[i] = touched_q;
  end

  // ---- Fields, headers, checksums.

  words_t             values;
  logic [Sources-1:0] written;
  headers_t           mask;
  logic               writes_ip, writes_transport;
  logic [15:0]        ip_checksum, transport_checksum;

  fl_rewrite_targets #(.Words(Words)) u_targets (
      .clk_i,
      .config_i,
      .bank_i,
      .words_i,
      .written_i,
      .values_o(values),
      .written_o(written)
  );

  fl_rewrite_headers u_headers (
      .clk_i,
      .config_i,
      .bank_i(beside[BeforeHeaders].bank),
      .valid_i(beside[BeforeHeaders].valid),
      .headers_i(old[BeforeHeaders]),
      .values_i(values),
      .written_i(written),
      .headers_o(changed[0]),
      .mask_o(mask)
  );

  fl_rewrite_checksum u_checksum (
      .clk_i,
      .valid_i(beside[BeforeChecksums].valid),
      .old_i(old[BeforeChecksums]),
      .new_i(changed[0]),
      .mask_i(mask),
      .writes_ip_o(writes_ip),
      .ip_o(ip_checksum),
      .writes_transport_o(writes_transport),
      .transport_o(transport_checksum)
  );

  // A byte is replaced if a bit of it is.
  always_comb begin
    for (int unsigned i = 0; i < $bits(bytes_t); i++) begin
      touched[0][i] = mask[8*i+:8] != '0;
    end
  end

  headers_t    inserted_d, inserted_q;
  bytes_t      keep_d, keep_q;
  logic [31:0] valid;

  assign valid = beside[BeforeInsert].valid;
  always_comb begin
    inserted_d = changed[BeforeInsert-BeforeChecksums];
    keep_d = touched[BeforeInsert-BeforeChecksums];
    if (writes_ip) begin
      inserted_d.ip[2][15:0] = ip_checksum;
      keep_d.ip[2][1:0] = '1;
    end
    if (writes_transport && valid[Tcp]) begin
      inserted_d.transport[4][31:16] = transport_checksum;
      keep_d.transport[4][3:2] = '1;
    end
    if (writes_transport && valid[Udp]) begin
      inserted_d.transport[1][15:0] = transport_checksum;
      keep_d.transport[1][1:0] = '1;
    end
    if (writes_transport && (valid[Icmp] || valid[Icmp6])) begin
      inserted_d.transport[0][15:0] = transport_checksum;
      keep_d.transport[0][1:0] = '1;
    end
  end

  always_ff @(posedge clk_i) begin
    inserted_q <= inserted_d;
    keep_q     <= keep_d;
  end

  // ---- The headers at their places: each word of the window is of one header at most.

  localparam int unsigned Parts = 4;

  places_t                      places;
  logic [1:0]                   tags;
  logic [WindowWords-1:0][31:0] words[Parts];
  logic [WindowWords-1:0][3:0]  keeps[Parts];
  logic [5:0][31:0]             link_d, link_q, link2_q;
  logic [5:0][3:0]              link_keep_d, link_keep_q, link2_keep_q;
  logic [111:0]                 ethernet_q, ethernet2_q;
  logic [13:0]                  ethernet_keep_q, ethernet2_keep_q;

  assign places = beside[BeforePlaces].places;
  assign tags = 2'(beside[BeforePlaces].valid[Vlan]) + 2'(beside[BeforePlaces].valid[Vlan2]);

  fl_place_words #(.WindowWords(WindowWords), .Words(10), .MaxAt(6)) u_ip (
      .clk_i, .at_i(places.ip), .words_i(inserted_q.ip), .keep_i(keep_q.ip), .words_o(words[0]), .keep_o(keeps[0]));
  fl_place_words #(.WindowWords(WindowWords), .Words(2)) u_fragment (
      .clk_i, .at_i(places.fragment), .words_i(inserted_q.fragment), .keep_i(keep_q.fragment), .words_o(words[1]),
      .keep_o(keeps[1]));
  fl_place_words #(.WindowWords(WindowWords), .Words(5)) u_transport (
      .clk_i, .at_i(places.transport), .words_i(inserted_q.transport), .keep_i(keep_q.transport), .words_o(words[2]),
      .keep_o(keeps[2]));
  fl_place_words #(.WindowWords(WindowWords), .Words(8)) u_user (
      .clk_i, .at_i(places.user), .words_i(inserted_q.user), .keep_i(keep_q.user), .words_o(words[3]),
      .keep_o(keeps[3]));

  always_comb begin
    link_d = '0;
    link_keep_d = '0;
    for (int unsigned i = 0; i < 2; i++) begin
      if (2'(i) < tags) begin
        link_d[i]      = inserted_q.vlan[i];
        link_keep_d[i] = keep_q.vlan[i];
      end
    end
    for (int unsigned at = 0; at < 3; at++) begin
      for (int unsigned i = 0; i < 4; i++) begin
        if (tags == 2'(at)) begin
          link_d[at+i]      = inserted_q.mpls[i];
          link_keep_d[at+i] = keep_q.mpls[i];
        end
      end
    end
  end

  always_ff @(posedge clk_i) begin
    link_q           <= link_d;
    link2_q          <= link_q;
    link_keep_q      <= link_keep_d;
    link2_keep_q     <= link_keep_q;
    ethernet_q       <= inserted_q.ethernet;
    ethernet2_q      <= ethernet_q;
    ethernet_keep_q  <= keep_q.ethernet;
    ethernet2_keep_q <= ethernet_keep_q;
  end

  logic [WindowWords-1:0][31:0] all;
  logic [WindowWords-1:0][3:0]  all_keep;

  always_comb begin
    all = '0;
    all_keep = '0;
    for (int unsigned i = 0; i < WindowWords; i++) begin
      for (int unsigned byte_at = 0; byte_at < 4; byte_at++) begin
        for (int unsigned part = 0; part < Parts; part++) begin
          if (keeps[part][i][byte_at]) all[i][8*byte_at+:8] |= words[part][i][8*byte_at+:8];
          all_keep[i][byte_at] |= keeps[part][i][byte_at];
        end
        if (i < 6 && link2_keep_q[i%6][byte_at]) all[i][8*byte_at+:8] |= link2_q[i%6][8*byte_at+:8];
        all_keep[i][byte_at] |= i < 6 && link2_keep_q[i%6][byte_at];
      end
    end
  end

  always_ff @(posedge clk_i) begin
    for (int unsigned i = 0; i < EthernetBytes; i++) begin
      data_o[8*i+:8] <= ethernet2_q[8*(EthernetBytes-1-i)+:8];
      mask_o[i]      <= ethernet2_keep_q[EthernetBytes-1-i];
    end
    for (int unsigned i = EthernetBytes; i < WindowBytes; i++) begin
      data_o[8*i+:8] <= all[(i-EthernetBytes)/4][8*(3-(i-EthernetBytes)%4)+:8];
      mask_o[i]      <= all_keep[(i-EthernetBytes)/4][3-(i-EthernetBytes)%4];
    end
  end

  assign sideband_o = beside[Latency].sideband;

  logic unused;
  assign unused = ^{valid, all, all_keep, beside[Latency], beside[BeforePlaces]};

  if (WindowBytes == 0 || WindowBytes % 64 != 0 || WindowBytes > 256) begin : gen_bad_window
    $error("WindowBytes is %0d, expected 64, 128, 192 or 256", WindowBytes);
  end

endmodule
